"""Ways in: passwords, second factors, providers, proxies; sessions, and the first run."""
