"""Backup and restore: a whole data directory at one end of the log, while the broker runs.

The order of the copies is such that nothing in a backup is ever ahead of its log:

    1  progress: offsets, delays, timers, transactions, replays, resets ...   at worst behind the log
    2  the end of the log is taken: the published offset
    3  configuration: topics, groups, options                                  a topic without messages does no harm
    4  the SQLite databases, by SQLite's own online backup
    5  the log up to that end

Queues, the key index, block checksums and the recovery position are left out: they are made again from the log when the
restored directory is first started. Results of jobs, earlier backups and the files of report runs are left out, too;
the reports and their facts are in.
"""

from .archive import BackupError, Damaged
from .making import LogEnd, Made, Spared, make_backup
from .manifest import Manifest
from .restoring import check_backup, read_manifest, restore_backup

__all__ = ["BackupError", "Damaged", "LogEnd", "Made", "Manifest", "Spared", "check_backup", "make_backup",
           "read_manifest", "restore_backup"]  # fmt: skip
