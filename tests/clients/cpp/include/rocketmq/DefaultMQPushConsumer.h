// What a program uses of rocketmq-client-cpp 2.2.0, as its include/*.h declare it: enough to compile against.
#pragma once
#include "DefaultMQProducer.h"

namespace rocketmq {

enum ConsumeFromWhere {
  CONSUME_FROM_LAST_OFFSET,
  CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST,
  CONSUME_FROM_MIN_OFFSET,
  CONSUME_FROM_MAX_OFFSET,
  CONSUME_FROM_FIRST_OFFSET,
  CONSUME_FROM_TIMESTAMP,
};
enum ConsumeStatus { CONSUME_SUCCESS, RECONSUME_LATER };

class MQMessageExt : public MQMessage {};

class MQMessageListener {
 public:
  virtual ~MQMessageListener() {}
  virtual ConsumeStatus consumeMessage(const std::vector<MQMessageExt>& msgs) = 0;
};
class MessageListenerConcurrently : public MQMessageListener {};

class DefaultMQPushConsumer {
 public:
  DefaultMQPushConsumer(const std::string& groupname);
  virtual ~DefaultMQPushConsumer();
  virtual void start();
  virtual void shutdown();
  void setNamesrvAddr(const std::string& namesrvAddr);
  void setSessionCredentials(const std::string& accessKey, const std::string& secretKey, const std::string& channel);
  void subscribe(const std::string& topic, const std::string& subExpression);
  void registerMessageListener(MQMessageListener* pMessageListener);
  void setConsumeFromWhere(ConsumeFromWhere consumeFromWhere);
  void setEnableSsl(bool enableSsl);
  void setSslPropertyFile(const std::string& sslPropertyFile);
};

}  // namespace rocketmq
