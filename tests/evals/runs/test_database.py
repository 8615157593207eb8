"""Whatever stands where a run's records should: one line that says so, and nothing of it is lost."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from branchwise.engine.errors import BranchwiseError, UsageError
from branchwise.evals.report.write import write_report
from branchwise.evals.runs import database
from branchwise.evals.runs.database import FILE, Database, count_records
from branchwise.evals.runs.launch import open_plan
from branchwise.evals.runs.plan import Plan, make_plan
from branchwise.evals.runs.store import LOCK, Store
from branchwise.evals.suites.registry import open_suite
from branchwise.evals.summary.files import write_whole
from branchwise.evals.summary.summarise import summarise
from support.evaluating import recipe, write_chains
from support.records import made_record, write_run


def a_plan(limit: int = 20) -> Plan:
    strategies = ("greedy", "best_of_n(n=2)", "best_of_n(n=8)")
    return make_plan(recipe(strategies=strategies, limit=limit), open_suite("countdown").samples(limit, 0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", lambda task, place: made_record(task))


def changed(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    return change


def cut(path: Path) -> None:
    os.truncate(path, 5000)


def overwritten(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * (size - 8192))


def text(path: Path) -> None:
    path.write_text("no database at all, but long enough to be taken for one" * 9)


def another_program(path: Path) -> None:
    path.unlink()
    changed("create table customers (name text)", "insert into customers values ('Ada')")(path)


def another_table_of_records(path: Path) -> None:
    path.unlink()
    changed("create table records (grooves integer)", "insert into records values (1)")(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BROKEN = [
    (cut, "damaged one"),
    (overwritten, "damaged one"),
    (text, "is no file of records"),
    (another_program, "another program's tables (customers)"),
    (another_table_of_records, "another program's tables (records)"),
    (a_folder, "cannot be opened"),
    (changed("update meta set value = '7' where name = 'format'"), "records of format 7, this reads 1"),
    (changed("delete from meta where name = 'format'"), "records of no format"),
    (changed("update meta set value = '{}' where name = 'recipe'"), "missing required field `suite`"),
    (changed("delete from meta where name = 'recipe'"), "damaged one"),
    (changed("""update records set record = '{"sample": 3'"""), "damaged one"),
    (changed("update samples set gold = 'x'"), "damaged one"),
]


@pytest.mark.parametrize(("damage", "said"), BROKEN)
def test_what_is_no_file_of_records_is_refused_in_one_line_by_readers_and_writers(
    folder: Path, damage: Callable[[Path], None], said: str
) -> None:
    path = folder / FILE
    damage(path)
    before = path.read_bytes() if path.is_file() else None

    def read() -> None:
        with Store.read(folder) as store:
            summarise(store)

    with pytest.raises(UsageError) as refused:
        read()
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    for resume in (True, False):
        with contextlib.suppress(UsageError), Store.open(folder, a_plan(), resume=resume) as store:
            list(store.records())
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_file_of_another_program_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / FILE
    changed("create table customers (name text)")(path)
    for resume in (False, True):
        with pytest.raises(UsageError, match="another program's tables"):
            Store.open(tmp_path, a_plan(), resume=resume)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select count(*) from customers").fetchone() == (0,)
    path.unlink()
    Store.open(tmp_path, a_plan(), resume=False).close()  # and its lock was let go


@pytest.mark.parametrize("mode", [None, "wal"])
def test_what_ended_before_its_first_transaction_is_begun_anew(tmp_path: Path, mode: str | None) -> None:
    path = tmp_path / FILE
    path.touch()
    if mode is not None:
        changed(f"pragma journal_mode = {mode}")(path)
    assert count_records(path) is None
    Store.open(tmp_path, a_plan(), resume=False).close()
    assert count_records(path) == 0


def test_a_damaged_graph_names_its_sample(folder: Path) -> None:
    changed("update records set graph = x'0102'")(folder / FILE)
    with Store.read(folder) as store, pytest.raises(UsageError, match=r"the graph of .* is damaged"):
        write_report(store, folder)


def test_a_file_that_another_program_holds_is_refused_when_patience_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE_S", 0.05)
    with contextlib.closing(sqlite3.connect(folder / FILE, isolation_level=None)) as other:
        other.execute("pragma locking_mode = exclusive")
        other.execute("begin exclusive")
        other.execute("update meta set value = value")
        for opened in (lambda: Store.read(folder), lambda: Store.open(folder, a_plan(), resume=True)):
            with pytest.raises(UsageError, match="another program holds it locked"):
                opened()
    with Store.read(folder) as store:
        assert len(store.done()) == 60


def test_a_run_is_read_while_another_process_writes_to_it(tmp_path: Path) -> None:
    plan = a_plan()
    with Store.open(tmp_path, plan, resume=False) as writer:
        for task in list(plan.tasks())[:7]:
            writer.add(made_record(task), None)
            with Store.read(tmp_path) as reader:
                assert len(list(reader.records())) == len(writer.done())


def test_a_reader_leaves_no_file_and_writes_no_record(folder: Path) -> None:
    with Store.read(folder) as store:
        record = next(store.records())
        with pytest.raises(UsageError, match="readonly"):
            store.add(msgspec.structs.replace(record, seed=99), None)
        next(store.records())  # left half read
    assert not list(folder.glob(f"{FILE}-*"))


def test_the_folder_of_the_lock_may_be_taken(folder: Path) -> None:
    (folder / LOCK).unlink(missing_ok=True)
    (folder / LOCK).mkdir()
    with pytest.raises(UsageError, match="cannot write there"):
        Store.open(folder, a_plan(), resume=True)


@pytest.fixture
def full(folder: Path) -> Iterator[Store]:
    """A store on a file that may not grow, which is how SQLite sees a full disk."""
    with Store.open(folder, a_plan(), resume=True) as store:
        store._database._connection.execute("pragma max_page_count = 1")
        yield store


def test_a_full_disk_ends_the_run_and_keeps_what_is_recorded(full: Store, folder: Path) -> None:
    record = next(full.records())
    with pytest.raises(BranchwiseError, match="the disk is full; what was recorded is safe") as raised:
        full.add(msgspec.structs.replace(record, seed=99, text="x" * 100_000), None)
    assert raised.value.exit_status == 3
    assert len(full.done()) == 60


def test_a_report_that_cannot_be_written_says_that_the_records_are_safe(folder: Path) -> None:
    (folder / "summary.md").mkdir()
    with Store.read(folder) as store, pytest.raises(BranchwiseError, match="the records are safe: make room"):
        write_report(store, folder)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "page"
    write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "new" * 10_000 + "\ud800")
    assert [file.name for file in tmp_path.iterdir()] == ["page"]
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda text: text.replace('"idx": 3,', '"idx": 33,'), "id of sample game24:3 was 'game24:3' and is"),
        (lambda text: text.replace('"infos"', '"infos"', 1), None),
        (lambda text: text[: text.rindex(', {"idx"')] + "]", "they were 4 and are now 3"),
    ],
)
def test_other_samples_are_refused_with_what_differs(
    tmp_path: Path, edit: Callable[[str], str], said: str | None
) -> None:
    path = write_chains(tmp_path / "chains.json", problems=4)
    what = recipe(suite="chains", strategies=("best_of_n(n=2)",), limit=None, budgets=(), recording=str(path))
    with Store.open(tmp_path / "run", open_plan(what)[1], resume=False) as store:
        task = next(open_plan(what)[1].tasks())
        store.add(made_record(task), None)
    path.write_text(edit(path.read_text()))
    if said is None:
        Store.open(tmp_path / "run", open_plan(what)[1], resume=True).close()
        return
    with pytest.raises(UsageError) as refused:
        Store.open(tmp_path / "run", open_plan(what)[1], resume=True)
    assert said in str(refused.value)


def test_statements_of_one_write_stand_together_or_not_at_all(tmp_path: Path) -> None:
    made = Database.create(tmp_path / FILE, [])
    add = "insert into meta values (?, ?)"
    with pytest.raises(sqlite3.IntegrityError):
        made.write((add, ("a", "1")), (add, ("a", "2")))
    assert made.first("select count(*) from meta") == (0,)
    made.close()
