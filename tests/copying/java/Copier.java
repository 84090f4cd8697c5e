import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The copier of copier.py with Apache Kafka's clients: the same arguments, notes and exit codes.
 *
 * <p>Arguments: bootstrap source sink group transactional-id life size aborts notes.
 */
public final class Copier implements ConsumerRebalanceListener {
    private static final int FATAL_EXIT = 3;
    private static final Duration CALL = Duration.ofSeconds(60);
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long LINGER_NS = 3_000_000_000L;

    private final String source;
    private final String sink;
    private final String name;
    private final int size;
    private final double aborts;
    private final Path notes;
    private final Random random;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final KafkaProducer<byte[], byte[]> producer;
    private final List<ConsumerRecord<byte[], byte[]>> held = new ArrayList<>();
    private long heldSince;
    private int count;
    private volatile boolean ending;

    private Copier(String[] args) {
        source = args[1];
        sink = args[2];
        name = args[4] + "." + args[5];
        size = Integer.parseInt(args[6]);
        aborts = Double.parseDouble(args[7]);
        notes = Path.of(args[8]);
        random = new Random(name.hashCode());
        consumer = new KafkaConsumer<>(
                consuming(args[0], args[3], size), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        producer = new KafkaProducer<>(
                producing(args[0], args[4]), new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static Properties common(String bootstrap) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("reconnect.backoff.ms", "50");
        config.put("reconnect.backoff.max.ms", "250");
        config.put("retry.backoff.ms", "50");
        config.put("retry.backoff.max.ms", "250");
        return config;
    }

    private static Properties consuming(String bootstrap, String group, int size) {
        Properties config = common(bootstrap);
        config.put("group.id", group);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        config.put(
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        config.put("session.timeout.ms", "6000");
        config.put("heartbeat.interval.ms", "1000");
        config.put("fetch.max.wait.ms", "100");
        config.put("max.poll.records", Integer.toString(size));
        return config;
    }

    private static Properties producing(String bootstrap, String id) {
        Properties config = common(bootstrap);
        config.put("transactional.id", id);
        config.put("transaction.timeout.ms", "60000");
        config.put("linger.ms", "2");
        return config;
    }

    public static void main(String[] args) throws IOException {
        Copier copier = new Copier(args);
        Thread ear = new Thread(copier::awaitEndOfInput);
        ear.setDaemon(true);
        ear.start();
        try {
            copier.run();
        } catch (KafkaException failure) {
            copier.note("error", failure.getClass().getSimpleName(), 1);
            System.err.println(copier.name + ": " + failure);
            Runtime.getRuntime().halt(FATAL_EXIT);
        }
    }

    private void awaitEndOfInput() {
        try {
            while (System.in.read() >= 0) {
                // wait for the end of input; any bytes are ignored
            }
        } catch (IOException broken) {
            System.err.println(name + ": " + broken);
        }
        ending = true;
    }

    private void run() throws IOException {
        repeat(producer::initTransactions);
        consumer.subscribe(List.of(source), this);
        while (!ending) {
            gather();
            while (held.size() >= size || !held.isEmpty() && System.nanoTime() - heldSince > LINGER_NS) {
                copy(held.subList(0, Math.min(size, held.size())));
            }
        }
        consumer.close();
        producer.close();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        held.clear(); // the next owners of the partitions begin at the committed offsets
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        // the consumer starts at the committed offsets by itself
    }

    private void gather() {
        boolean wasEmpty = held.isEmpty();
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
            held.add(record);
        }
        if (wasEmpty) {
            heldSince = System.nanoTime();
        }
    }

    /** Copy records, a view of {@code held}: a commit removes them from it, an abort clears all of it. */
    private void copy(List<ConsumerRecord<byte[], byte[]>> records) throws IOException {
        String transaction = name + "." + ++count;
        int number = records.size();
        boolean keeps = random.nextDouble() >= aborts;
        try {
            producer.beginTransaction();
            write(records, " " + transaction + " " + number);
            if (keeps) {
                repeat(producer::commitTransaction);
            }
        } catch (KafkaException refused) {
            note("error", refused.getClass().getSimpleName(), 1);
            keeps = false;
        }
        if (keeps) {
            note("committed", transaction, number);
            records.clear();
        } else {
            repeat(producer::abortTransaction); // fails if the producer cannot continue
            note("aborted", transaction, number);
            held.clear();
            repeat(this::rewind);
        }
    }

    private void write(List<ConsumerRecord<byte[], byte[]>> records, String mark) throws IOException {
        byte[] suffix = mark.getBytes(StandardCharsets.UTF_8);
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            byte[] value = Arrays.copyOf(record.value(), record.value().length + suffix.length);
            System.arraycopy(suffix, 0, value, record.value().length, suffix.length);
            producer.send(new ProducerRecord<>(sink, record.partition(), null, value));
            ends.put(
                    new TopicPartition(source, record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
        }
        repeat(() -> producer.sendOffsetsToTransaction(ends, consumer.groupMetadata()));
    }

    /** Repeat a call that times out: its outcome is unknown until the same call returns. */
    private void repeat(Runnable call) throws IOException {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException open) {
                note("error", "TimeoutException", 1);
            }
        }
    }

    /** Seek to the committed offsets of all assigned partitions. */
    private void rewind() {
        consumer.committed(consumer.assignment(), CALL).forEach((partition, offset) ->
                consumer.seek(partition, offset == null ? 0 : offset.offset()));
    }

    /** Append one line in one write, so that a kill leaves whole lines and at most one partial line. */
    private void note(String kind, String what, int number) throws IOException {
        Files.writeString(
                notes, kind + " " + what + " " + number + "\n",
                StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }
}
