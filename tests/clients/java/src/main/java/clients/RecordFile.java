package clients;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.rocketmq.common.message.MessageExt;

/** Appends one line a message: broker, queue id, queue offset, message id, SHA-256 of the body, tab-separated. */
final class RecordFile {
    private final BufferedWriter writer;

    RecordFile(String path) throws IOException {
        writer = Files.newBufferedWriter(
                Path.of(path), StandardCharsets.US_ASCII, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    void add(MessageExt message) {
        add(
                message.getBrokerName(),
                message.getQueueId(),
                message.getQueueOffset(),
                message.getMsgId(),
                Messages.sha256(message.getBody()));
    }

    void add(String broker, int queueId, long queueOffset, String messageId, String sha256) {
        line(broker + "\t" + queueId + "\t" + queueOffset + "\t" + messageId + "\t" + sha256);
    }

    /** Any other line. */
    synchronized void line(String text) {
        try {
            writer.write(text + "\n");
            writer.flush();
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        }
    }

    synchronized void close() {
        try {
            writer.close();
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        }
    }
}
