from power.recording.csv_export import write_samples_csv
from power.recording.envelope import Envelope, extremes_w, recording_envelope, view
from power.recording.growing import GrowingRecording
from power.recording.reader import Recording, open_recording, verify_hashes
from power.recording.recorder import FIRST_SAMPLE_S, put_earlier_aside, record
from power.recording.records import BATCH_SAMPLES, OPENING_FILE, RAW_FILE, RECORDING_FILE, RecordingRecord
from power.recording.redecode import compare_with_raw
from power.recording.salvage import salvage_recording
from power.recording.writer import RecordingWriter

__all__ = [
    "BATCH_SAMPLES",
    "FIRST_SAMPLE_S",
    "OPENING_FILE",
    "RAW_FILE",
    "RECORDING_FILE",
    "Envelope",
    "GrowingRecording",
    "Recording",
    "RecordingRecord",
    "RecordingWriter",
    "compare_with_raw",
    "extremes_w",
    "open_recording",
    "put_earlier_aside",
    "record",
    "recording_envelope",
    "salvage_recording",
    "verify_hashes",
    "view",
    "write_samples_csv",
]  # fmt: skip
