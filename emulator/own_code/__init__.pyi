from emulator.own_code.files import GivenCode, code_of, given_code, use_code, use_files
from emulator.own_code.find import ALL_TASKS, find_task

__all__ = ["ALL_TASKS", "GivenCode", "code_of", "find_task", "given_code", "use_code", "use_files"]
