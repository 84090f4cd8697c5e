import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;

/**
 * Apache Kafka's producer, which commits a transaction and aborts the next one at once, whose record it has not sent
 * yet: BOOTSTRAP TOPIC ID TRANSACTIONS.
 */
public class HastyTransactions {
    public static void main(String[] given) {
        String bootstrap = given[0], topic = given[1], id = given[2];
        int transactions = Integer.parseInt(given[3]), committed = 0, aborted = 0;
        Map<String, Integer> failures = new TreeMap<>();
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
                failures.merge(failure.getClass().getSimpleName(), 1, Integer::sum);
                producer.close();
                producer = producer(bootstrap, id);
            }
        }
        producer.close();
        System.out.println("committed " + committed + " aborted " + aborted + " failed " + failures);
    }

    static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        return producer;
    }
}
