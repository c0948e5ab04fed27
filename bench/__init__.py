"""Load against RocketBox and Apache RocketMQ, side by side: see README.md."""
