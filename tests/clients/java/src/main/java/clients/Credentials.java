package clients;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** What a client signs with: "access_key" and "secret_key" of its arguments; null without. */
final class Credentials {
    private Credentials() {}

    static RPCHook hook(Args args) {
        return args.has("access_key")
                ? new AclClientRPCHook(new SessionCredentials(args.text("access_key"), args.text("secret_key")))
                : null;
    }
}
