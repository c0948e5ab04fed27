package clients;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * What a listener does with a message, as the arguments of its start say: "hold_ms" (0) it takes for it; it fails with
 * it "fail" times (0; -1: always), counted by body; "failing" is "later" (the status that says so) or "throw";
 * "next_level" (0) is the delay level it asks for: 0 leaves it to the broker, -1 means the dead letters.
 */
final class Conduct {
    final int nextLevel;
    private final long holdMs;
    private final long fail;
    private final boolean throwing;
    private final Map<String, Long> failures = new HashMap<>();

    Conduct(Args args) {
        nextLevel = (int) args.number("next_level", 0);
        holdMs = args.number("hold_ms", 0);
        fail = args.number("fail", 0);
        throwing = args.text("failing", "later").equals("throw");
    }

    /** Whether the listener is done with these messages. Throws when that is how it fails. */
    boolean succeeds(List<MessageExt> messages) {
        sleep();
        boolean done = true;
        for (MessageExt message : messages) {
            done &= !fails(Messages.sha256(message.getBody()));
        }
        if (!done && throwing) {
            throw new IllegalStateException("as the test wants it");
        }
        return done;
    }

    private synchronized boolean fails(String body) {
        return fail < 0 || failures.merge(body, 1L, Long::sum) <= fail;
    }

    private void sleep() {
        if (holdMs > 0) {
            try {
                Thread.sleep(holdMs);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
