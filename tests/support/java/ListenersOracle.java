import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.Endpoint;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Parses a broker's listeners with Apache Kafka. An input line: settings KEY=VALUE, tab-separated.
 * An output line: "ok", `listeners`, `advertised.listeners` and the inter-broker listener, tab-separated,
 * or "refused" and why.
 */
public final class ListenersOracle {
    private static final String PROTOCOLS = "listener.security.protocol.map";

    public static void main(String[] args) throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line).replace("\n", " "));
        }
    }

    private static String answer(String line) {
        Properties settings = new Properties();
        settings.put("process.roles", "broker");
        settings.put("node.id", "1");
        settings.put("controller.listener.names", "CONTROLLER");
        settings.put("controller.quorum.bootstrap.servers", "localhost:9093");
        settings.put("log.dirs", "/nowhere");
        for (String setting : line.split("\t")) {
            int equals = setting.indexOf('=');
            settings.put(setting.substring(0, equals), setting.substring(equals + 1));
        }
        // An Apache Kafka broker also has a controller listener.
        String protocols = settings.getProperty(PROTOCOLS, "");
        if (!protocols.isEmpty()) {
            settings.put(PROTOCOLS, "CONTROLLER:PLAINTEXT," + protocols);
        }
        try {
            KafkaConfig config = KafkaConfig.fromProps(settings, false);
            return String.join("\t", "ok", written(config.listeners()),
                written(config.effectiveAdvertisedBrokerListeners()),
                config.interBrokerListenerName().value());
        } catch (Exception refused) {
            return "refused\t" + refused.getMessage();
        }
    }

    private static String written(scala.collection.Seq<Endpoint> endpoints) {
        List<String> found = new ArrayList<>();
        for (Endpoint one : CollectionConverters.asJava(endpoints)) {
            String host = one.host() == null ? "" : one.host();
            found.add(one.listener() + " " + one.securityProtocol() + " " + host + " " + one.port());
        }
        return String.join(",", found);
    }
}
