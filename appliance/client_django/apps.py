from django.apps import AppConfig


class RocketBoxConfig(AppConfig):
    name = __name__.rpartition(".")[0]
    label = "rocketbox"
    verbose_name = "RocketMQ"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401  which registers them
