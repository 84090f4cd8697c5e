import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;

/** Apache Kafka's transactional producer, and its read_committed consumer: BOOTSTRAP TOPIC ID ROUNDS. */
public class Transactions {
    static final int RECORDS = 5;

    public static void main(String[] given) throws Exception {
        String bootstrap = given[0], topic = given[1], id = given[2];
        int rounds = Integer.parseInt(given[3]);
        KafkaProducer<String, String> producer = producer(bootstrap, id);
        KafkaConsumer<String, String> group = consumer(bootstrap, id + "-group");
        producer.initTransactions();
        for (int round = 0; round < rounds; round++) {
            producer.beginTransaction();
            for (int n = 0; n < RECORDS; n++) {
                String value = (round % 3 == 2 ? "aborted-" : "kept-") + round + "-" + n;
                producer.send(new ProducerRecord<>(topic, n % 2, null, value));
            }
            TopicPartition source = new TopicPartition(topic, 0);
            producer.sendOffsetsToTransaction(
                Map.of(source, new OffsetAndMetadata(round)), group.groupMetadata());
            if (round % 3 == 2) {
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
            }
        }
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
        KafkaProducer<String, String> second = producer(bootstrap, id);
        second.initTransactions();
        try {
            producer.commitTransaction();
            System.out.println("not fenced");
        } catch (ProducerFencedException | org.apache.kafka.common.errors.InvalidProducerEpochException fenced) {
            System.out.println("fenced");
        }
        second.beginTransaction();
        second.send(new ProducerRecord<>(topic, 1, null, "kept-last")).get();
        second.commitTransaction();
        read(bootstrap, topic);
        TopicPartition source = new TopicPartition(topic, 0);
        System.out.println("offset " + group.committed(java.util.Set.of(source)).get(source).offset());
        producer.close(Duration.ZERO);
        second.close();
        group.close();
    }

    static void read(String bootstrap, String topic) {
        try (KafkaConsumer<String, String> reader = consumer(bootstrap, "reader")) {
            List<TopicPartition> all = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            reader.assign(all);
            reader.seekToBeginning(all);
            Map<TopicPartition, Long> ends = reader.endOffsets(all);
            List<String> found = new ArrayList<>();
            while (all.stream().anyMatch(one -> reader.position(one) < ends.get(one))) {
                reader.poll(Duration.ofMillis(200)).forEach(record -> found.add(record.value()));
            }
            System.out.println("read " + found.size() + " " + new TreeSet<>(found));
        }
    }

    static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Properties settings = strings(bootstrap);
        settings.put("transactional.id", id);
        return new KafkaProducer<>(settings);
    }

    static KafkaConsumer<String, String> consumer(String bootstrap, String group) {
        Properties settings = strings(bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        return new KafkaConsumer<>(settings);
    }

    static Properties strings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (String side : List.of("key", "value")) {
            settings.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return settings;
    }
}
