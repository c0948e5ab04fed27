"""The window: all that console, API and metrics may see of the engine, and all they may ask of it."""

from .engine_admin import EngineAdmin

__all__ = ["EngineAdmin"]
