import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RetriableCommitFailedException;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnsupportedCompressionTypeException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes and reads a topic until its input ends, and prints the lines of a history.
 *
 * <p>Arguments: bootstrap topic partitions producers consumers members records/s record-bytes seed.
 * Errors from which a client does not recover are printed to the error output. The exit code is
 * then 1.
 */
public final class CheckedClients {
    private static final int IN_FLIGHT_MAX = 500;
    private static final double SEEK_CHANCE = 0.01;
    private static final Duration END = Duration.ofSeconds(60);
    private static final Duration POLL = Duration.ofMillis(200);

    private final String bootstrap;
    private final String topic;
    private final List<TopicPartition> partitions;
    private final double recordsPerSecond;
    private final int recordBytes;
    private final long seed;
    private final PrintStream history;
    private volatile boolean ending;
    private volatile boolean failed;
    private long last;

    private CheckedClients(String[] args, PrintStream history) {
        bootstrap = args[0];
        topic = args[1];
        partitions = IntStream.range(0, Integer.parseInt(args[2]))
                .mapToObj(index -> new TopicPartition(args[1], index)).toList();
        recordsPerSecond = Double.parseDouble(args[6]);
        recordBytes = Integer.parseInt(args[7]);
        seed = Long.parseLong(args[8]);
        this.history = history;
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        PrintStream history = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        CheckedClients clients = new CheckedClients(args, history);
        List<Thread> threads = new ArrayList<>();
        clients.start(threads, "java-produce", Integer.parseInt(args[3]), clients::produce);
        clients.start(threads, "java-consume", Integer.parseInt(args[4]), clients::consume);
        clients.start(threads, "java-member", Integer.parseInt(args[5]), clients::consumeAsMember);
        while (System.in.read() >= 0) {
            // there is no input, only its end
        }
        clients.ending = true;
        for (Thread thread : threads) {
            thread.join();
        }
        history.flush();
        System.exit(clients.failed ? 1 : 0);
    }

    private interface Work {
        void run(String name, Random random) throws InterruptedException;
    }

    private void start(List<Thread> threads, String kind, int count, Work work) {
        for (int number = 0; number < count; number++) {
            String name = kind + "-" + number;
            Random random = new Random(seed * 31 + name.hashCode());
            Thread thread = new Thread(() -> {
                try {
                    work.run(name, random);
                } catch (Exception failure) {
                    failed = true;
                    System.err.println(name + ": " + failure);
                }
            }, name);
            threads.add(thread);
            thread.start();
        }
    }

    // -- writing ---------------------------------------------------------------------------------

    private Properties common(String name) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", name);
        config.put("reconnect.backoff.ms", "50");
        config.put("reconnect.backoff.max.ms", "250");
        config.put("retry.backoff.ms", "50");
        config.put("retry.backoff.max.ms", "250");
        return config;
    }

    private void produce(String name, Random random) throws InterruptedException {
        Properties config = common(name);
        config.put("acks", "all");
        config.put("enable.idempotence", "true");
        config.put("linger.ms", "2");
        config.put("request.timeout.ms", "10000");
        config.put("delivery.timeout.ms", "60000");
        config.put("max.block.ms", "60000");
        Semaphore room = new Semaphore(IN_FLIGHT_MAX);
        long step = (long) (1e9 / recordsPerSecond);
        long next = System.nanoTime();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long number = 0; !ending; number++) {
                if (!room.tryAcquire(1, TimeUnit.SECONDS)) {
                    number--;
                    continue;
                }
                send(producer, name, number, random.nextInt(partitions.size()), room);
                next = Math.max(next + step, System.nanoTime() - 1_000_000_000L);
                TimeUnit.NANOSECONDS.sleep(Math.max(0, next - System.nanoTime()));
            }
            producer.flush();
        }
    }

    private void send(
            KafkaProducer<byte[], byte[]> producer, String name, long number, int partition,
            Semaphore room) {
        String value = name + ":" + number;
        String begin = String.format("[\"send\",\"%s\",\"%s\",%d,\"%s\",%d,",
                name, topic, partition, value, now());
        producer.send(
                new ProducerRecord<>(topic, partition, null, payload(value)),
                (metadata, failure) -> {
                    line(begin + now() + "," + outcome(metadata, failure) + ",null,null]");
                    room.release();
                });
    }

    private static String outcome(RecordMetadata metadata, Exception failure) {
        if (failure == null) {
            return "\"ok\"," + (metadata.hasOffset() ? metadata.offset() : "null");
        }
        return (isNeverWritten(failure) ? "\"failed\"" : "\"unknown\"") + ",null";
    }

    /** Whether every attempt would get this error. */
    private static boolean isNeverWritten(Exception failure) {
        return failure instanceof RecordTooLargeException
                || failure instanceof InvalidTimestampException
                || failure instanceof UnsupportedCompressionTypeException;
    }

    private byte[] payload(String value) {
        int missing = Math.max(0, recordBytes - value.length());
        return (value + " ".repeat(missing)).getBytes(StandardCharsets.UTF_8);
    }

    // -- reading ---------------------------------------------------------------------------------

    private KafkaConsumer<byte[], byte[]> consumer(String name, String group, String reset) {
        Properties config = common(name);
        config.put("group.id", group);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", reset);
        config.put("fetch.max.wait.ms", "100");
        config.put("isolation.level", "read_committed");
        config.put("default.api.timeout.ms", "60000");
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Reads all partitions, sometimes from the beginning again. */
    private void consume(String name, Random random) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(name, name, "none")) {
            begin(consumer, name);
            while (!ending) {
                poll(consumer, name);
                if (random.nextDouble() < SEEK_CHANCE) {
                    begin(consumer, name);
                }
            }
        }
    }

    private void begin(KafkaConsumer<byte[], byte[]> consumer, String name) {
        String starts = partitions.stream().map(one -> place(one) + ",0]")
                .collect(Collectors.joining(",", "[", "]"));
        line("[\"assign\",\"" + name + "\"," + now() + "," + starts + "]");
        consumer.assign(partitions);
        partitions.forEach(one -> consumer.seek(one, 0));
    }

    /** Reads as a member of a group. Leaves and rejoins now and then. */
    private void consumeAsMember(String name, Random random) {
        for (int life = 0; !ending; life++) {
            String member = name + "." + life;
            String group = topic + "-java";
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(member, group, "earliest")) {
                line("[\"subscribe\",\"" + member + "\"," + now() + ",[\"" + topic + "\"]]");
                consumer.subscribe(List.of(topic), new Rebalances(member));
                long leavesAt = System.nanoTime() + (5 + random.nextInt(25)) * 1_000_000_000L;
                while (!ending && System.nanoTime() < leavesAt) {
                    if (poll(consumer, member) > 0) {
                        commit(consumer);
                    }
                }
            }
        }
    }

    /** Commits. What a rebalance or a coordinator move forbids is left to the next owner. */
    private static void commit(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            consumer.commitSync(END);
        } catch (CommitFailedException
                | RetriableCommitFailedException
                | RebalanceInProgressException
                | TimeoutException passing) {
            // somebody reads those records again
        }
    }

    private int poll(KafkaConsumer<byte[], byte[]> consumer, String name) {
        long invoked = now();
        ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
        if (!records.isEmpty()) {
            String batches = records.partitions().stream()
                    .map(one -> batch(one, records.records(one)))
                    .collect(Collectors.joining(",", "[", "]"));
            line("[\"poll\",\"" + name + "\"," + invoked + "," + now() + "," + batches + ",true,null]");
        }
        return records.count();
    }

    private static String batch(
            TopicPartition partition, List<ConsumerRecord<byte[], byte[]>> records) {
        String offsets = records.stream().map(one -> Long.toString(one.offset()))
                .collect(Collectors.joining(",", "[", "]"));
        String values = records.stream()
                .map(one -> "\"" + new String(one.value(), StandardCharsets.UTF_8).strip() + "\"")
                .collect(Collectors.joining(",", "[", "]"));
        return place(partition) + "," + offsets + "," + values + "]";
    }

    /** The beginning of a list: topic and partition. */
    private static String place(TopicPartition partition) {
        return "[\"" + partition.topic() + "\"," + partition.partition();
    }

    private final class Rebalances implements ConsumerRebalanceListener {
        private final String member;

        Rebalances(String member) {
            this.member = member;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> changed) {
            rebalanced("assigned", changed);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> changed) {
            rebalanced("revoked", changed);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> changed) {
            rebalanced("lost", changed);
        }

        private void rebalanced(String change, Collection<TopicPartition> changed) {
            String places = changed.stream().map(one -> place(one) + "]")
                    .collect(Collectors.joining(",", "[", "]"));
            line("[\"rebalance\",\"" + member + "\"," + now() + ",\"" + change + "\"," + places + "]");
        }
    }

    // -- the history -----------------------------------------------------------------------------

    /** The time in ns on the clock of Python's time.monotonic_ns, later than all previous ones. */
    private synchronized long now() {
        last = Math.max(last + 1, System.nanoTime());
        return last;
    }

    private synchronized void line(String line) {
        history.println(line);
    }
}
