"""Writes a dump in LiveLab's form, with every quirk of its format notes; no byte of it is LiveLab's."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TextIO

BEGIN_S = 1_265_000_000
HOME_SCREEN = "SpringBoard"
APPS = (
    HOME_SCREEN,
    "com.apple.MobileSMS",
    "com.apple.mobilesafari",
    "Bob's Game",
    'The "Best" App',
    "Paint (lite), v2; really",
    "back\\slash",
    "Überwachung",
    "two\nlines",
    "100%_pure",
    "-- no comment",
    "INSERT INTO appusage VALUES (1,'x','y',1,1);",
)

HEADER = """-- MySQL dump 10.11
-- it's only a header; there is nothing here
/*!40101 SET NAMES 'utf8' */;
# a third kind of comment (with a ' quote)

DROP TABLE IF EXISTS `appusage`;
CREATE TABLE `appusage` (
  `id` int(11) NOT NULL auto_increment,
  `uid` varchar(10) NOT NULL COMMENT 'user, e.g. A00',
  `name` varchar(200) default NULL,
  `time` int(11) default '0',
  `duration` decimal(10,3) default NULL,
  PRIMARY KEY  (`id`),
  KEY `who` (`uid`,`time`)
) ENGINE=MyISAM DEFAULT CHARSET=utf8;

LOCK TABLES `appusage` WRITE;
/*!40000 ALTER TABLE `appusage` DISABLE KEYS */;
"""
BETWEEN = """
CREATE TABLE other (id int, note text);
INSERT INTO other VALUES (1,'; INSERT INTO `appusage` VALUES (0,\\'no\\',\\'no\\',1,1)'),
 (2,"it's ""fine"";"),(3,NULL);
INSERT INTO `appusage_archive` VALUES (1,'A00','Mail',1,1); /* another table whose name begins alike */
UPDATE other SET note = 'a;b' WHERE id = 1;
"""
FOOTER = """
/*!40000 ALTER TABLE `appusage` ENABLE KEYS */;
UNLOCK TABLES;
-- Dump completed
"""


class Run(NamedTuple):
    """One row of ``appusage``; times in seconds, no duration where the dump says NULL."""

    user: str
    app: str
    time_s: int
    duration_s: int | None


def runs(rows: int, users: int = 34, seed: int = 0) -> Iterator[Run]:
    """Interleaved runs of all users; of each user's runs about 1 % are NULL, 2 % overlap, 1 % are empty."""
    rng = random.Random(seed)
    clock_s = [BEGIN_S + 17 * user for user in range(users)]
    for row in range(rows):
        user = row % users if row < users else rng.randrange(users)
        luck = rng.random()
        length_s = None if luck < 0.01 else 0 if luck < 0.02 else rng.randrange(1, 300)
        app = HOME_SCREEN if luck > 0.7 else APPS[rng.randrange(len(APPS))]
        yield Run(f"A{user:02d}", app, clock_s[user], length_s)
        overlap_s = 1 if 0.02 <= luck < 0.04 and length_s else 0
        clock_s[user] += (length_s or 1) - overlap_s + rng.randrange(3) * (1 - overlap_s)


def dump(some_runs: Iterable[Run]) -> Iterator[str]:
    """The dump's text, statement by statement, in ever changing forms."""
    yield HEADER
    source = iter(some_runs)
    first_id, form = 1, 0
    # Rows per statement: single rows, the usual dozens, and a long extended INSERT.
    while batch := list(islice(source, (1, 40, 3, 700, 1, 5000)[form % 6])):
        yield _statement(batch, first_id, form)
        if form % 50 == 7:
            yield BETWEEN
        first_id += len(batch)
        form += 1
    yield FOOTER


def _statement(batch: list[Run], first_id: int, form: int) -> str:
    quote = (_backslashed, _doubled, _double_quoted)[form % 3]
    if form % 4 == 1:
        values = [
            f"({_number(run.duration_s)}, {quote(run.app)},{run.time_s}\n , {quote(run.user)})"
            for run in batch
        ]
        return "insert into appusage (`duration`, name, `Time`,uid) values\n" + " ,\n".join(values) + " ;\n"
    values = [
        f"({number},{quote(run.user)},{quote(run.app)},{run.time_s},{_number(run.duration_s)})"
        for number, run in enumerate(batch, first_id)
    ]
    begin = ("INSERT INTO `appusage` VALUES ", "", "INSERT IGNORE INTO `livelab`.`appusage` VALUES\n", "")[
        form % 4
    ]
    separator = ", -- it's next\n" if form % 8 == 2 else ","
    return (begin or "REPLACE INTO appusage VALUES") + separator.join(values) + ";\n"


def _number(value: int | None) -> str:
    return "NULL" if value is None else str(value)


def _backslashed(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def _doubled(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _double_quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'


def write(path: Path, some_runs: Iterable[Run]) -> None:
    """Write a dump as UTF-8."""
    with path.open("w", encoding="utf-8") as file:
        _write_to(file, some_runs)


def _write_to(file: TextIO, some_runs: Iterable[Run]) -> None:
    file.writelines(dump(some_runs))
