import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Runs Apache Kafka's own assignors. Input lines, tab-separated, "-" for none:
 *   topic NAME COUNT RACKS       racks of each partition: "a,b|b,c"
 *   member ID INSTANCE RACK GENERATION TOPICS OWNED USERDATA     "t0,t1"  "t0:0,1;t1:2"  hex
 *   assign NAME                  range, roundrobin, sticky, cooperative-sticky, server-range, uniform
 * Output lines: one per member, "ID OWNED", then "end".
 */
public final class AssignorOracle {
    private record Topic(String name, int count, List<Set<String>> racks, Uuid id) {}

    private record Member(
        String id, String instance, String rack, int generation, Set<String> topics,
        Map<String, Set<Integer>> owned, byte[] userData) {}

    private static final Map<String, Topic> topics = new TreeMap<>();
    private static final Map<String, Member> members = new TreeMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            switch (words[0]) {
                case "topic" -> addTopic(words);
                case "member" -> addMember(words);
                default -> assign(words[1]);
            }
        }
    }

    private static void addTopic(String[] words) {
        List<Set<String>> racks = new ArrayList<>();
        if (!words[3].equals("-")) {
            for (String each : words[3].split("\\|")) racks.add(new TreeSet<>(List.of(each.split(","))));
        }
        topics.put(words[1], new Topic(words[1], Integer.parseInt(words[2]), racks,
            new Uuid(0, topics.size() + 1)));
    }

    private static void addMember(String[] words) {
        Set<String> subscribed = new TreeSet<>();
        if (!words[5].equals("-")) subscribed.addAll(List.of(words[5].split(",")));
        Map<String, Set<Integer>> owned = new TreeMap<>();
        if (!words[6].equals("-")) {
            for (String each : words[6].split(";")) {
                String[] parts = each.split(":");
                Set<Integer> numbers = new TreeSet<>();
                for (String number : parts[1].split(",")) numbers.add(Integer.parseInt(number));
                owned.put(parts[0], numbers);
            }
        }
        byte[] userData = words[7].equals("-") ? new byte[0] : java.util.HexFormat.of().parseHex(words[7]);
        members.put(words[1], new Member(words[1], none(words[2]), none(words[3]),
            Integer.parseInt(words[4]), subscribed, owned, userData));
    }

    private static String none(String word) {
        return word.equals("-") ? null : word;
    }

    private static void assign(String name) {
        Map<String, Map<String, Set<Integer>>> result = switch (name) {
            case "range" -> classic(new RangeAssignor());
            case "roundrobin" -> classic(new RoundRobinAssignor());
            case "sticky" -> classic(new StickyAssignor());
            case "cooperative-sticky" -> classic(new CooperativeStickyAssignor());
            case "server-range" -> server(new org.apache.kafka.coordinator.group.assignor.RangeAssignor());
            case "uniform" -> server(new UniformAssignor());
            default -> throw new IllegalArgumentException(name);
        };
        StringBuilder out = new StringBuilder();
        result.forEach((id, owned) -> out.append(id).append('\t').append(worded(owned)).append('\n'));
        System.out.print(out + "end\n");
        System.out.flush();
        topics.clear();
        members.clear();
    }

    private static String worded(Map<String, Set<Integer>> owned) {
        List<String> words = new ArrayList<>();
        owned.forEach((topic, numbers) -> {
            if (!numbers.isEmpty()) {
                words.add(topic + ":" + String.join(",", numbers.stream().map(String::valueOf).toList()));
            }
        });
        return words.isEmpty() ? "-" : String.join(";", words);
    }

    private static Map<String, Map<String, Set<Integer>>> classic(ConsumerPartitionAssignor assignor) {
        Map<String, Node> nodes = new TreeMap<>();
        List<PartitionInfo> infos = new ArrayList<>();
        for (Topic topic : topics.values()) {
            for (int number = 0; number < topic.count; number++) {
                Set<String> racks = topic.racks.isEmpty() ? Set.of() : topic.racks.get(number);
                Node[] replicas = racks.stream().map(rack -> nodes.computeIfAbsent(
                    rack, key -> new Node(nodes.size(), "localhost", 9092, key))).toArray(Node[]::new);
                Node leader = replicas.length == 0 ? Node.noNode() : replicas[0];
                infos.add(new PartitionInfo(topic.name, number, leader, replicas, replicas));
            }
        }
        Cluster cluster = new Cluster("c", nodes.values(), infos, Set.of(), Set.of());
        Map<String, ConsumerPartitionAssignor.Subscription> subscriptions = new LinkedHashMap<>();
        for (Member member : members.values()) {
            List<TopicPartition> owned = new ArrayList<>();
            member.owned.forEach((topic, numbers) ->
                numbers.forEach(number -> owned.add(new TopicPartition(topic, number))));
            var subscription = new ConsumerPartitionAssignor.Subscription(
                new ArrayList<>(member.topics),
                member.userData.length == 0 ? null : ByteBuffer.wrap(member.userData), owned,
                member.generation, Optional.ofNullable(member.rack));
            subscription.setGroupInstanceId(Optional.ofNullable(member.instance));
            subscriptions.put(member.id, subscription);
        }
        Map<String, Map<String, Set<Integer>>> result = new TreeMap<>();
        assignor.assign(cluster, new ConsumerPartitionAssignor.GroupSubscription(subscriptions))
            .groupAssignment().forEach((id, assignment) -> {
                Map<String, Set<Integer>> given = result.computeIfAbsent(id, key -> new TreeMap<>());
                for (TopicPartition each : assignment.partitions()) {
                    given.computeIfAbsent(each.topic(), key -> new TreeSet<>()).add(each.partition());
                }
            });
        return result;
    }

    private static Map<String, Map<String, Set<Integer>>> server(PartitionAssignor assignor) {
        Map<String, MemberSubscriptionAndAssignmentImpl> specs = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        Set<Set<String>> kinds = new HashSet<>();
        Map<Uuid, String> names = new HashMap<>();
        topics.values().forEach(topic -> names.put(topic.id, topic.name));
        for (Member member : members.values()) {
            Map<Uuid, Set<Integer>> owned = new LinkedHashMap<>();
            member.owned.forEach((topic, numbers) -> {
                Uuid id = topics.containsKey(topic) ? topics.get(topic).id : new Uuid(9, topic.hashCode());
                owned.put(id, numbers);
                numbers.forEach(number ->
                    inverted.computeIfAbsent(id, key -> new HashMap<>()).put(number, member.id));
            });
            Set<Uuid> subscribed = new java.util.LinkedHashSet<>();
            for (String name : member.topics) {
                if (topics.containsKey(name)) subscribed.add(topics.get(name).id);
            }
            kinds.add(member.topics);
            specs.put(member.id, new MemberSubscriptionAndAssignmentImpl(
                Optional.ofNullable(member.rack), Optional.ofNullable(member.instance), subscribed,
                new Assignment(owned)));
        }
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid id) {
                return names.containsKey(id) ? topics.get(names.get(id)).count : -1;
            }

            @Override
            public Set<String> racksForPartition(Uuid id, int number) {
                List<Set<String>> racks = topics.get(names.get(id)).racks;
                return racks.isEmpty() ? Collections.emptySet() : racks.get(number);
            }
        };
        GroupAssignment assignment = assignor.assign(new GroupSpecImpl(specs,
            kinds.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS, inverted),
            describer);
        Map<String, Map<String, Set<Integer>>> result = new TreeMap<>();
        assignment.members().forEach((id, given) -> {
            Map<String, Set<Integer>> sorted = result.computeIfAbsent(id, key -> new TreeMap<>());
            given.partitions().forEach((topic, numbers) ->
                sorted.put(names.get(topic), new TreeSet<>(numbers)));
        });
        return result;
    }
}
