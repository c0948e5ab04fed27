import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * Asks RocketMQ's own filter module. Lines on stdin, one answer each on stdout; texts are hex of UTF-16BE.
 *
 * verdicts: "expression[ name value]..." -> TRUE, FALSE, NULL, OTHER class, THROWS class, or REFUSED class line column
 * (0 0 where the module does not say where).
 * rates MILLISECONDS: "expression[ properties]..." -> evaluations a second over these properties texts in turn, parsed
 * before, and how many of one round match. Like the broker it decodes all properties of a message.
 */
public class SqlVerdicts {
    private static final Pattern PLACE = Pattern.compile("at line (\\d+), column (\\d+)");

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        String line;
        while ((line = in.readLine()) != null) {
            String[] fields = line.split(" ", -1);
            String expression = text(fields[0]);
            out.println(args[0].equals("rates") ? rate(expression, fields, Long.parseLong(args[1])) : verdict(expression, fields));
            out.flush();
        }
    }

    private static String verdict(String text, String[] fields) {
        Map<String, String> properties = new HashMap<>();
        for (int i = 1; i < fields.length; i += 2) {
            properties.put(text(fields[i]), text(fields[i + 1]));
        }
        Expression expression;
        try {
            expression = SelectorParser.parse(text);
        } catch (Throwable refused) {
            Throwable cause = refused.getCause() == null ? refused : refused.getCause();
            Matcher place = PLACE.matcher(String.valueOf(cause.getMessage()));
            String where = place.find() ? place.group(1) + " " + place.group(2) : "0 0";
            return "REFUSED " + cause.getClass().getSimpleName() + " " + where;
        }
        try {
            Object value = expression.evaluate(new Properties(properties));
            if (value == null) {
                return "NULL";
            }
            return value instanceof Boolean ? value.toString().toUpperCase() : "OTHER " + value.getClass().getSimpleName();
        } catch (Throwable thrown) {
            return "THROWS " + thrown.getClass().getSimpleName();
        }
    }

    private static String rate(String text, String[] fields, long millis) throws Exception {
        Expression expression = SelectorParser.parse(text);
        byte[][] raw = new byte[fields.length - 1][];
        for (int i = 1; i < fields.length; i++) {
            raw[i - 1] = text(fields[i]).getBytes(StandardCharsets.UTF_8);
        }
        long matched = round(expression, raw);
        long rounds = 0;
        for (long pass : new long[] {Math.max(millis, 1000), millis}) {
            rounds = 0;
            long began = System.nanoTime();
            while (System.nanoTime() - began < pass * 1_000_000L) {
                matched = round(expression, raw);
                rounds++;
            }
        }
        return rounds * raw.length * 1000 / millis + " " + matched;
    }

    private static long round(Expression expression, byte[][] raw) {
        long matched = 0;
        for (byte[] properties : raw) {
            try {
                String text = new String(properties, StandardCharsets.UTF_8);
                Object value = expression.evaluate(new Properties(MessageDecoder.string2messageProperties(text)));
                if (value == Boolean.TRUE) {
                    matched++;
                }
            } catch (Throwable thrown) {
                // No match, as in the broker.
            }
        }
        return matched;
    }

    private static String text(String hex) {
        // Not by a decoder: it would replace a surrogate without its other half.
        char[] units = new char[hex.length() / 4];
        for (int i = 0; i < units.length; i++) {
            units[i] = (char) HexFormat.fromHexDigits(hex, 4 * i, 4 * i + 4);
        }
        return new String(units);
    }

    private static final class Properties implements EvaluationContext {
        private final Map<String, String> properties;

        Properties(Map<String, String> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(properties);
        }
    }
}
