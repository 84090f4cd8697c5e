import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Latency at a fixed rate, end to end and until the acknowledgement: each record carries the time at
 * which it was due, so that a stalled producer counts as latency and is not left out.
 *
 * <p>Arguments: bootstrap topic rate seconds warmupSeconds size acks. Prints one JSON object with
 * times in ms.
 */
public final class PacedLatency {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        long rate = Long.parseLong(args[2]);
        int warmup = (int) (rate * Long.parseLong(args[4]));
        int total = warmup + (int) (rate * Long.parseLong(args[3]));
        int size = Integer.parseInt(args[5]);
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("acks", args[6]);
        config.put("linger.ms", "0");
        config.put("fetch.max.wait.ms", "500");
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        List<TopicPartition> assigned = List.of(new TopicPartition(topic, 0));
        long[] latencies = new long[total];
        long[] acknowledged = new long[total];
        int received = 0;
        try (KafkaConsumer<byte[], byte[]> consumer =
                        new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                KafkaProducer<byte[], byte[]> producer =
                        new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            consumer.position(assigned.get(0));
            producer.partitionsFor(topic);
            Thread sender = new Thread(() -> send(producer, topic, rate, size, acknowledged), "sender");
            sender.setDaemon(true);
            sender.start();
            long last = System.nanoTime();
            while (received < total && System.nanoTime() - last < 20_000_000_000L) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    last = System.nanoTime();
                    latencies[received++] = last - ByteBuffer.wrap(record.value()).getLong();
                }
            }
            sender.join(20_000);
        }
        if (received < total) {
            System.err.println("only " + received + " of " + total + " records came back");
            System.exit(1);
        }
        System.out.println("{\"records\": " + (total - warmup) + figures("", latencies, warmup)
                + figures("acknowledged_", acknowledged, warmup) + "}");
    }

    private static String figures(String prefix, long[] latencies, int warmup) {
        long[] measured = Arrays.copyOfRange(latencies, warmup, latencies.length);
        Arrays.sort(measured);
        double mean = Arrays.stream(measured).average().orElse(0) / 1e6;
        return String.format(Locale.ROOT,
                ", \"%1$smean\": %2$.4f, \"%1$sp50\": %3$.4f, \"%1$sp99\": %4$.4f, \"%1$sp999\": %5$.4f,"
                        + " \"%1$smax\": %6$.4f",
                prefix, mean, at(measured, 0.5), at(measured, 0.99), at(measured, 0.999),
                measured[measured.length - 1] / 1e6);
    }

    private static double at(long[] sorted, double quantile) {
        return sorted[(int) Math.min(sorted.length - 1, (long) (sorted.length * quantile))] / 1e6;
    }

    private static void send(
            KafkaProducer<byte[], byte[]> producer, String topic, long rate, int size, long[] acknowledged) {
        long began = System.nanoTime() + 10_000_000L;
        for (int i = 0; i < acknowledged.length; i++) {
            int number = i;
            long due = began + i * 1_000_000_000L / rate;
            for (long early = due - System.nanoTime(); early > 0; early = due - System.nanoTime()) {
                LockSupport.parkNanos(early);
            }
            byte[] value = ByteBuffer.allocate(Math.max(8, size)).putLong(due).array();
            producer.send(new ProducerRecord<>(topic, 0, null, value), (metadata, failure) -> {
                if (failure != null) {
                    failure.printStackTrace();
                    System.exit(1);
                }
                acknowledged[number] = System.nanoTime() - due;
            });
        }
        producer.flush();
    }
}
