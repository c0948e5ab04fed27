package main

import (
	"context"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func init() {
	commands["admin.create_topic"] = withAdmin(func(ctx context.Context, a admin.Admin, args arguments) (interface{}, error) {
		return nil, a.CreateTopic(ctx,
			admin.WithTopicCreate(args.text("topic", "")),
			admin.WithBrokerAddrCreate(args.text("broker", "")),
			admin.WithReadQueueNums(int(args.number("queues", 4))),
			admin.WithWriteQueueNums(int(args.number("queues", 4))))
	})
	commands["admin.delete_topic"] = withAdmin(func(ctx context.Context, a admin.Admin, args arguments) (interface{}, error) {
		return nil, a.DeleteTopic(ctx,
			admin.WithTopicDelete(args.text("topic", "")),
			admin.WithBrokerAddrDelete(args.text("broker", "")),
			admin.WithNameSrvAddr(args.namesrv()))
	})
	commands["admin.topics"] = withAdmin(func(ctx context.Context, a admin.Admin, args arguments) (interface{}, error) {
		list, err := a.FetchAllTopicList(ctx)
		if err != nil {
			return nil, err
		}
		return list.TopicList, nil
	})
	commands["admin.groups"] = withAdmin(func(ctx context.Context, a admin.Admin, args arguments) (interface{}, error) {
		table, err := a.GetAllSubscriptionGroup(ctx, args.text("broker", ""), 5*time.Second)
		if err != nil {
			return nil, err
		}
		names := make([]string, 0)
		for name := range table.SubscriptionGroupTable {
			names = append(names, name)
		}
		return names, nil
	})
	commands["admin.queues"] = withAdmin(func(ctx context.Context, a admin.Admin, args arguments) (interface{}, error) {
		list, err := a.FetchPublishMessageQueues(ctx, args.text("topic", ""))
		if err != nil {
			return nil, err
		}
		return queues(list), nil
	})
}

func withAdmin(run func(context.Context, admin.Admin, arguments) (interface{}, error)) command {
	return func(args arguments) (interface{}, error) {
		one, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(args.namesrv())))
		if err != nil {
			return nil, err
		}
		defer one.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		return run(ctx, one, args)
	}
}
