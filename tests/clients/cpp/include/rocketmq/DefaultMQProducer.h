// What a program uses of rocketmq-client-cpp 2.2.0, as its include/*.h declare it: enough to compile against.
#pragma once
#include <string>
#include <vector>

namespace rocketmq {

class MQMessage {
 public:
  MQMessage(const std::string& topic, const std::string& tags, const std::string& body);
  virtual ~MQMessage();
  const std::string& getBody() const;
};

class SendResult {
 public:
  virtual ~SendResult();
  std::string toString() const;
};

class DefaultMQProducer {
 public:
  DefaultMQProducer(const std::string& groupname);
  virtual ~DefaultMQProducer();
  virtual void start();
  virtual void shutdown();
  virtual SendResult send(MQMessage& msg, bool bSelectActiveBroker = false);
  void setNamesrvAddr(const std::string& namesrvAddr);
  void setSessionCredentials(const std::string& accessKey, const std::string& secretKey, const std::string& channel);
  void setEnableSsl(bool enableSsl);
  void setSslPropertyFile(const std::string& sslPropertyFile);
};

}  // namespace rocketmq
