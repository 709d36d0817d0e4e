"""The hash of the code that decides results."""

from pathlib import Path

from emulator.runs.software import deciding_files, hash_of, sources_sha256


def test_what_decides_a_number_is_hashed_and_what_shows_it_is_not() -> None:
    files = deciding_files()
    deciding = (
        "emulator/round/engine.py",
        "emulator/selectors/fedavg.py",
        "traces/replay/policy.py",
        "power/profile/model.py",
    )
    for name in (*deciding, "device_agents/workloads/tasks.py", "joulefleet/seeds.py"):
        assert files[name].is_file()
    assert not [name for name in files if name.startswith(("emulator/compare/", "emulator/experiments/"))]
    assert not [name for name in files if name.startswith(("harness/", "device_agents/payload"))]
    assert sources_sha256() == hash_of(files)


def test_other_code_is_another_hash(tmp_path: Path) -> None:
    file = tmp_path / "engine.py"
    file.write_text("a = 1\n")
    before = hash_of({"engine.py": file})
    assert hash_of({"other.py": file}) != before
    file.write_text("a = 2\n")
    assert hash_of({"engine.py": file}) != before
