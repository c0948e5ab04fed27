"""The audit log: acts are recorded before they are done, and sealed afterwards."""
