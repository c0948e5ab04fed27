package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"strings"
)

// arguments of one command, as JSON decoded them.
type arguments map[string]interface{}

func (a arguments) text(key string, otherwise string) string {
	if value, ok := a[key].(string); ok {
		return value
	}
	return otherwise
}

func (a arguments) number(key string, otherwise int64) int64 {
	if value, ok := a[key].(float64); ok {
		return int64(value)
	}
	return otherwise
}

func (a arguments) flag(key string) bool {
	value, _ := a[key].(bool)
	return value
}

func (a arguments) queue() *primitive.MessageQueue {
	json, _ := a["queue"].(map[string]interface{})
	queue := arguments(json)
	return &primitive.MessageQueue{
		Topic:      queue.text("topic", ""),
		BrokerName: queue.text("broker", ""),
		QueueId:    int(queue.number("queue_id", 0)),
	}
}

func (a arguments) namesrv() primitive.NamesrvAddr {
	return strings.Split(a.text("namesrv", ""), ";")
}

// credentials that a client signs with; empty without any.
func (a arguments) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: a.text("access_key", ""), SecretKey: a.text("secret_key", "")}
}

func (a arguments) trace() *primitive.TraceConfig {
	return &primitive.TraceConfig{GroupName: "trace", Access: primitive.Local, NamesrvAddrs: a.namesrv()}
}

// messages makes {"body": base64, "tags", "keys", "properties", "flag", "delay", "timer", "order"} into messages of "topic".
func (a arguments) messages() ([]*primitive.Message, error) {
	list, _ := a["messages"].([]interface{})
	messages := make([]*primitive.Message, 0, len(list))
	for _, element := range list {
		json := arguments(element.(map[string]interface{}))
		body, err := base64.StdEncoding.DecodeString(json.text("body", ""))
		if err != nil {
			return nil, fmt.Errorf("body is not base64: %w", err)
		}
		message := primitive.NewMessage(a.text("topic", ""), body)
		message.WithTag(json.text("tags", ""))
		if keys, ok := json["keys"].([]interface{}); ok {
			texts := make([]string, 0, len(keys))
			for _, key := range keys {
				texts = append(texts, key.(string))
			}
			message.WithKeys(texts)
		}
		if properties, ok := json["properties"].(map[string]interface{}); ok {
			for name, value := range properties {
				message.WithProperty(name, value.(string))
			}
		}
		if order := json.text("order", ""); order != "" {
			message.WithShardingKey(order)
		}
		if level := json.number("delay", 0); level != 0 {
			message.WithDelayTimeLevel(int(level))
		}
		if timer, ok := json["timer"].(map[string]interface{}); ok {
			for name, value := range timer {
				message.WithProperty(name, strconv.FormatInt(int64(value.(float64)), 10))
			}
		}
		message.Flag = int32(json.number("flag", 0))
		messages = append(messages, message)
	}
	return messages, nil
}

func sent(result *primitive.SendResult) map[string]interface{} {
	status := map[primitive.SendStatus]string{
		primitive.SendOK:                "SEND_OK",
		primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
		primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
		primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
	}[result.Status]
	return map[string]interface{}{
		"status":         status,
		"msg_id":         result.MsgID,
		"offset_msg_id":  result.OffsetMsgID,
		"broker":         result.MessageQueue.BrokerName,
		"queue_id":       result.MessageQueue.QueueId,
		"queue_offset":   result.QueueOffset,
		"transaction_id": result.TransactionID,
	}
}

func received(message *primitive.MessageExt) map[string]interface{} {
	var tags, keys interface{}
	if message.GetTags() != "" {
		tags = message.GetTags()
	}
	if message.GetKeys() != "" {
		keys = message.GetKeys()
	}
	return map[string]interface{}{
		"topic":           message.Topic,
		"broker":          message.Queue.BrokerName,
		"queue_id":        message.Queue.QueueId,
		"queue_offset":    message.QueueOffset,
		"physical_offset": message.CommitLogOffset,
		"msg_id":          message.MsgId,
		"offset_msg_id":   message.OffsetMsgId,
		"flag":            message.Flag,
		"tags":            tags,
		"keys":            keys,
		"properties":      message.GetProperties(),
		"body_sha256":     hash(message.Body),
		"body_bytes":      len(message.Body),
		"sys_flag":        message.SysFlag,
		"transaction_id":  message.TransactionId,
		"prepared_offset": message.PreparedTransactionOffset,
		"store_bytes":     message.StoreSize,
		"born_at_ms":      message.BornTimestamp,
		"store_at_ms":     message.StoreTimestamp,
		"born_host":       message.BornHost,
		"store_host":      message.StoreHost,
		"reconsume_times": message.ReconsumeTimes,
		"at_ms":           time.Now().UnixMilli(),
	}
}

func receivedAll(messages []*primitive.MessageExt) []interface{} {
	list := make([]interface{}, 0, len(messages))
	for _, message := range messages {
		list = append(list, received(message))
	}
	return list
}

func queues(list []*primitive.MessageQueue) []interface{} {
	json := make([]interface{}, 0, len(list))
	for _, queue := range list {
		json = append(json, map[string]interface{}{
			"topic": queue.Topic, "broker": queue.BrokerName, "queue_id": queue.QueueId,
		})
	}
	return json
}

func hash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
