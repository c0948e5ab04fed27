package clients;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What DefaultMQAdminExt (mqadmin's library) creates, reads and deletes. One admin, started on first use. */
final class Admin {
    // Types that moved between packages from 4.9 to 5.x are never named here: `var` stands for both.
    private static DefaultMQAdminExt admin;
    private static String namesrv;

    private Admin() {}

    static void register(Map<String, Agent.Command> commands) {
        commands.put("admin.create_topic", Admin::createTopic);
        commands.put("admin.create_topic_by_key", Admin::createTopicByKey);
        commands.put("admin.topics", args -> new TreeSet<>(admin(args).fetchAllTopicList().getTopicList()));
        commands.put("admin.topic", Admin::topic);
        commands.put("admin.all_topics", args -> new TreeSet<>(admin(args)
                .getAllTopicConfig(args.text("broker"), 5000).getTopicConfigTable().keySet()));
        commands.put("admin.delete_topic", Admin::deleteTopic);
        commands.put("admin.route", Admin::route);
        commands.put("admin.cluster", Admin::cluster);
        commands.put("admin.create_group", Admin::createGroup);
        commands.put("admin.group", Admin::group);
        commands.put("admin.groups", args -> new TreeSet<>(admin(args)
                .getAllSubscriptionGroup(args.text("broker"), 5000).getSubscriptionGroupTable().keySet()));
        commands.put("admin.delete_group", args -> {
            admin(args).deleteSubscriptionGroup(args.text("broker"), args.text("group"), true);
            return null;
        });
        commands.put("admin.broker_config", args -> new TreeMap<>(admin(args).getBrokerConfig(args.text("broker"))));
        commands.put("admin.runtime", args -> new TreeMap<>(
                admin(args).fetchBrokerRuntimeStats(args.text("broker")).getTable()));
        commands.put("admin.offsets", Admin::offsets);
        commands.put("admin.put_kv", args -> {
            admin(args).createAndUpdateKvConfig(args.text("namespace"), args.text("key"), args.text("value"));
            return null;
        });
        commands.put("admin.query", Admin::query);
        // An offset id, or else a unique id: the client finds out.
        commands.put("admin.view", args -> Messages.received(
                admin(args).viewMessage(args.text("topic"), args.text("message"))));
        commands.put("admin.get_kv", args -> admin(args).getKVConfig(args.text("namespace"), args.text("key")));
    }

    private static synchronized DefaultMQAdminExt admin(Args args) throws Exception {
        if (admin != null && !namesrv.equals(args.text("namesrv"))) {
            admin.shutdown();
            admin = null;
        }
        if (admin == null) {
            namesrv = args.text("namesrv");
            DefaultMQAdminExt starting = new DefaultMQAdminExt(10_000);
            starting.setNamesrvAddr(namesrv);
            starting.setInstanceName("admin-" + System.nanoTime());
            starting.start();
            admin = starting;
        }
        return admin;
    }

    private static Object createTopic(Args args) throws Exception {
        TopicConfig config = new TopicConfig(args.text("topic"));
        config.setReadQueueNums((int) args.number("read_queues", args.number("queues", 4)));
        config.setWriteQueueNums((int) args.number("write_queues", args.number("queues", 4)));
        config.setPerm((int) args.number("perm", 6));
        config.setOrder(args.flag("order"));
        admin(args).createAndUpdateTopicConfig(args.text("broker"), config);
        return null;
    }

    /** createTopic(key, name, queues, ..): its last parameter is a number in 4.9 and a map in 5.x. */
    private static Object createTopicByKey(Args args) throws Exception {
        for (Method method : DefaultMQAdminExt.class.getMethods()) {
            Class<?>[] types = method.getParameterTypes();
            if (method.getName().equals("createTopic") && types.length == 4) {
                Object last = types[3] == Map.class ? Map.of() : Integer.valueOf(0);
                method.invoke(admin(args), args.text("key"), args.text("topic"), (int) args.number("queues", 4), last);
                return null;
            }
        }
        throw new NoSuchMethodException("createTopic with four parameters");
    }

    private static Object topic(Args args) throws Exception {
        TopicConfig config = admin(args).examineTopicConfig(args.text("broker"), args.text("topic"));
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("topic", config.getTopicName());
        json.put("read_queues", config.getReadQueueNums());
        json.put("write_queues", config.getWriteQueueNums());
        json.put("perm", config.getPerm());
        json.put("order", config.isOrder());
        return json;
    }

    private static Object deleteTopic(Args args) throws Exception {
        admin(args).deleteTopicInBroker(Set.of(args.text("broker")), args.text("topic"));
        // The two names changed places between 4.9 and 5.x.
        boolean clusterFirst = MQVersion.CURRENT_VERSION >= MQVersion.Version.V5_0_0.ordinal();
        String cluster = args.text("cluster", "DefaultCluster");
        String topic = args.text("topic");
        admin(args).deleteTopicInNameServer(
                Set.of(args.text("namesrv")), clusterFirst ? cluster : topic, clusterFirst ? topic : cluster);
        return null;
    }

    /** Messages of a topic by one of their keys, oldest first. */
    private static Object query(Args args) throws Exception {
        var result = admin(args).queryMessage(args.text("topic"), args.text("key"), (int) args.number("max", 32),
                args.number("begin", 0), args.number("end", Long.MAX_VALUE));
        return Messages.received(result.getMessageList());
    }

    private static Object route(Args args) throws Exception {
        var route = admin(args).examineTopicRouteInfo(args.text("topic"));
        List<Object> brokers = new ArrayList<>();
        for (var broker : route.getBrokerDatas()) {
            Map<String, Object> json = new LinkedHashMap<>();
            json.put("cluster", broker.getCluster());
            json.put("name", broker.getBrokerName());
            json.put("addresses", broker.getBrokerAddrs());
            brokers.add(json);
        }
        List<Object> queues = new ArrayList<>();
        for (var queue : route.getQueueDatas()) {
            Map<String, Object> json = new LinkedHashMap<>();
            json.put("broker", queue.getBrokerName());
            json.put("read_queues", queue.getReadQueueNums());
            json.put("write_queues", queue.getWriteQueueNums());
            json.put("perm", queue.getPerm());
            queues.add(json);
        }
        return Map.of("brokers", brokers, "queues", queues);
    }

    private static Object cluster(Args args) throws Exception {
        var info = admin(args).examineBrokerClusterInfo();
        Map<String, Object> brokers = new TreeMap<>();
        for (var broker : info.getBrokerAddrTable().values()) {
            brokers.put(broker.getBrokerName(), broker.getBrokerAddrs());
        }
        return Map.of("clusters", info.getClusterAddrTable(), "brokers", brokers);
    }

    private static Object createGroup(Args args) throws Exception {
        // A group every broker has is the template: the class itself moved.
        var config = admin(args).examineSubscriptionGroupConfig(args.text("broker"), "TOOLS_CONSUMER");
        config.setGroupName(args.text("group"));
        config.setRetryMaxTimes((int) args.number("retries", 16));
        config.setRetryQueueNums((int) args.number("retry_queues", 1));
        config.setConsumeBroadcastEnable(!args.flag("no_broadcast"));
        admin(args).createAndUpdateSubscriptionGroupConfig(args.text("broker"), config);
        return null;
    }

    private static Object group(Args args) throws Exception {
        var config = admin(args).examineSubscriptionGroupConfig(args.text("broker"), args.text("group"));
        if (config == null) {
            return Map.of();
        }
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("group", config.getGroupName());
        json.put("retries", config.getRetryMaxTimes());
        json.put("retry_queues", config.getRetryQueueNums());
        json.put("broadcast", config.isConsumeBroadcastEnable());
        return json;
    }

    private static Object offsets(Args args) throws Exception {
        MessageQueue queue = Messages.queue(args.object("queue"));
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("min", admin(args).minOffset(queue));
        json.put("max", admin(args).maxOffset(queue));
        json.put("earliest_ms", admin(args).earliestMsgStoreTime(queue));
        json.put("at", admin(args).searchOffset(queue, args.number("timestamp_ms", 0)));
        return json;
    }
}
