import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One transaction, held open until told to commit: BOOTSTRAP TOPIC ID TIMEOUT-MS VALUE.
 *
 * <p>Prints `open` when its record is written, reads a line, and prints `committed` or the exception.
 */
public class OpenTransaction {
    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("transactional.id", given[2]);
        settings.put("transaction.timeout.ms", given[3]);
        StringSerializer strings = new StringSerializer();
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings, strings, strings);
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(given[1], 0, null, given[4])).get();
        System.out.println("open");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        try {
            producer.commitTransaction();
            System.out.println("committed");
        } catch (RuntimeException refused) {
            System.out.println(refused.getClass().getSimpleName());
        }
        Runtime.getRuntime().halt(0);
    }
}
