import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic from its beginning as kafka-consumer-perf-test does, with its settings, but with
 * assigned partitions instead of a group.
 *
 * <p>Arguments: bootstrap topic partitions records [key=value ...]. Prints one JSON object.
 */
public final class AssignedConsumer {
    public static void main(String[] args) {
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        long wanted = Long.parseLong(args[3]);
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("receive.buffer.bytes", "2097152");
        config.put("max.partition.fetch.bytes", "1048576");
        config.put("check.crcs", "false");
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        for (int i = 4; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            config.put(pair[0], pair[1]);
        }
        List<TopicPartition> assigned =
                IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).toList();
        long records = 0;
        long bytes = 0;
        long seconds;
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            long began = System.nanoTime();
            long last = began;
            while (records < wanted && System.nanoTime() - last < 20_000_000_000L) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    records++;
                    bytes += (record.key() == null ? 0 : record.key().length)
                            + (record.value() == null ? 0 : record.value().length);
                    last = 0;
                }
                last = last == 0 ? System.nanoTime() : last;
            }
            seconds = System.nanoTime() - began;
        }
        System.out.println(String.format(Locale.ROOT,
                "{\"records\": %d, \"bytes\": %d, \"seconds\": %.6f}", records, bytes, seconds / 1e9));
        System.exit(records >= wanted ? 0 : 1);
    }
}
