"""The commands beside `rocketbox serve`, one module each."""
