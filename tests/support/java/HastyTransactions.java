import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Apache Kafka's producer, which commits a transaction and immediately aborts the next one before its record is sent:
 * BOOTSTRAP TOPIC ID TRANSACTIONS.
 *
 * Rarely, the producer itself fails after such an abort. It drops the record of the next transaction and commits it
 * nevertheless, so the coordinator finds no transaction; or it sends the record and never commits. This also happens
 * with an Apache Kafka broker. Each such transaction is named on a line of its own.
 */
public class HastyTransactions {
    public static void main(String[] given) {
        String bootstrap = given[0], topic = given[1], id = given[2];
        int transactions = Integer.parseInt(given[3]), committed = 0, aborted = 0;
        List<Integer> dropped = new ArrayList<>();
        List<String> failures = new ArrayList<>();
        KafkaProducer<String, String> producer = producer(bootstrap, id);
        for (int n = 0; n < transactions; n++) {
            boolean commits = n % 2 == 0;
            try {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, n % 4 / 2, null, (commits ? "kept-" : "dropped-") + n));
                if (commits) {
                    producer.commitTransaction();
                    committed++;
                } else {
                    producer.abortTransaction();
                    aborted++;
                }
            } catch (KafkaException failure) {
                boolean own = failure instanceof InvalidTxnStateException || failure instanceof TimeoutException;
                if (commits && own) dropped.add(n);
                else failures.add(n + " " + failure);
                producer.close(Duration.ofSeconds(1));
                producer = producer(bootstrap, id);
            }
        }
        producer.close();
        System.out.println("committed " + committed + " aborted " + aborted + " failed " + failures);
        System.out.println("dropped " + dropped);
    }

    static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("max.block.ms", "10000");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        return producer;
    }
}
