"""The command `raylog health`: checks whether every broker serves, for people and scripts."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.failures import EXIT_FAILED, Failure
from raylog.cli.options import DEFAULT_DATA, Data, Json
from raylog.cli.output import print_json, print_table
from raylog.cli.progress import within
from raylog.cli.status import health_lines, partition_counts

if TYPE_CHECKING:
    from raylog.cluster_record import ClusterRecord

_HTTP_TIMEOUT_S = 5.0
_RAY_TIMEOUT_S = 30
_DOCUMENT_BYTES_MAX = 64 * 1024
Row = dict[str, object]
"""A broker in the format of `BrokerHealth.document`. If it does not answer, `reasons` says why."""


def health(
    address: Annotated[
        list[str] | None,
        typer.Option(
            "--address",
            metavar="HOST:PORT",
            help="A broker's health.listener, to ask over HTTP; repeatable.",
        ),
    ] = None,
    data: Data = DEFAULT_DATA,
    as_json: Json = False,
) -> None:
    """Check whether every broker serves. The exit code is 0 if all is well, otherwise 1.

    Without --address, the command asks the brokers of the cluster on a data
    directory, and also checks that each partition has a leader. It is quick,
    for probes and scripts. `raylog top` shows more about problems, and `raylog
    doctor` looks for causes.

    raylog health --data DIR

    raylog health --address 10.0.0.5:8080 --address 10.0.0.6:8080
    """
    counts: dict[str, int] | None = None
    bootstrap: list[str] = []
    if address:
        rows = [_over_http(one) for one in address]
    else:
        from raylog.cli.local_cluster import running_record

        record = running_record(data)
        bootstrap = record.bootstrap
        unanswered = Failure(f"Ray did not answer within {_RAY_TIMEOUT_S} s", None, EXIT_FAILED)
        with within(_RAY_TIMEOUT_S, unanswered):
            rows = rows_over_ray(record)
            counts = partition_counts(record)
    all_well = all(map(is_well, rows)) and not (
        not address and (counts is None or counts["unavailable"])
    )
    if as_json:
        print_json({"healthy": all_well, "brokers": rows, "partitions": counts})
    else:
        _show(rows)
        for line in () if address else health_lines(counts, bootstrap):
            typer.echo(line)
    if not all_well:
        raise typer.Exit(EXIT_FAILED)


def is_well(row: Row) -> bool:
    """Whether a broker serves all of its partitions."""
    return bool(row["ready"]) and not row["offline_partitions"]


def _show(rows: list[Row]) -> None:
    """Print a line for each broker, and each reason why one does not serve."""
    print_table(
        None,
        ["broker#", "ready", "state", "partitions#", "offline#", "address"],
        [
            (
                row["broker"],
                "yes" if row["ready"] else "no",
                row["state"],
                row["partitions"],
                row["offline_partitions"],
                row["listener"],
            )
            for row in rows
        ],
    )
    from raylog.actors.log_formatting import plain

    for row in rows:
        who = row["listener"] if row["broker"] is None else f"broker {row['broker']}"
        reasons = row["reasons"]
        for reason in reasons if isinstance(reasons, list) else []:
            typer.echo(plain(f"{who}: {reason}"))


def _unknown(broker: int | None, listener: str | None, why: str) -> Row:
    """Return the row of a broker that does not answer."""
    return {
        "broker": broker,
        "ready": False,
        "state": "unknown",
        "reasons": [why],
        "partitions": None,
        "offline_partitions": None,
        "listener": listener,
    }


def _over_http(address: str) -> Row:
    """Probe a broker and return its row, whatever listens there.

    Raises BadParameter if the address is not HOST:PORT.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise typer.BadParameter(f"expected HOST:PORT, found {address!r}", param_hint="--address")
    asking = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=_HTTP_TIMEOUT_S)
    try:
        asking.request("GET", "/readyz")
        return _read(asking.getresponse().read(_DOCUMENT_BYTES_MAX)) | {"listener": address}
    except (OSError, http.client.HTTPException) as failure:
        return _unknown(None, address, f"does not answer: {failure}")
    except (ValueError, RecursionError) as failure:
        return _unknown(
            None, address, f"the answer is not that of a broker's health listener: {failure}"
        )
    finally:
        asking.close()


def _read(answer: bytes) -> Row:
    """Parse a broker's answer. Raises ValueError or RecursionError for anything else."""
    document = json.loads(answer)
    expected = [*_unknown(None, None, "")]
    if not isinstance(document, dict) or not {*expected} <= {*document}:
        raise ValueError(f"expected {', '.join(expected)}, found {str(document)[:200]}")
    return {key: document[key] for key in expected}


def rows_over_ray(record: ClusterRecord) -> list[Row]:
    """Return each started broker's row; `reasons` says why if it does not answer."""
    from raylog.cli.local_cluster import ask_health

    healths, failures = ask_health(record)
    rows = {one.broker_id: one.document() for one in healths}
    return [
        rows.get(broker_id) or _unknown(broker_id, None, f"does not answer: {failures[broker_id]}")
        for broker_id in record.broker_ids
    ]
