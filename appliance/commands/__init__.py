"""The commands of `rocketbox` besides `serve`, a module for each."""
