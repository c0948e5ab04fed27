pytest_plugins = ("appliance.pytest_rocketbox",)
