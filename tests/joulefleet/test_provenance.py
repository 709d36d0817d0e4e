import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulefleet.errors import ProvenanceError
from joulefleet.provenance import Instrument, Origin, Provenance, SourceRef, combine, weakest

SHA = "0" * 64
REAL = Instrument(kind="monsoon-hvpm", serial="1", emulated=False)
FAKE = Instrument(kind="monsoon-hvpm", serial="1", emulated=True)
SOURCE = SourceRef(id="capture", sha256=SHA)


def of(origin: Origin) -> Provenance:
    if origin is Origin.MEASURED:
        return Provenance(origin=origin, instrument=REAL, sources=(SOURCE,))
    return Provenance(origin=origin, basis="test")


def test_an_emulated_instrument_never_measures() -> None:
    for origin in set(Origin) - {Origin.EMULATED}:
        with pytest.raises(ValueError, match="the instrument is emulated"):
            Provenance(origin=origin, instrument=FAKE, sources=(SOURCE,), basis="b")
    assert Provenance(origin=Origin.EMULATED, instrument=FAKE).origin is Origin.EMULATED


@pytest.mark.parametrize("missing", ["instrument", "sources"])
def test_measured_needs_evidence(missing: str) -> None:
    given = {"instrument": REAL, "sources": (SOURCE,)}
    del given[missing]
    with pytest.raises(ValueError, match="needs an instrument"):
        Provenance(origin=Origin.MEASURED, **given)


@pytest.mark.parametrize("origin", [Origin.SCALED, Origin.LITERATURE])
def test_scaled_and_literature_say_from_what(origin: Origin) -> None:
    with pytest.raises(ValueError, match="basis"):
        Provenance(origin=origin)


@given(st.lists(st.sampled_from(list(Origin)), min_size=1, max_size=5))
def test_combining_never_strengthens(origins: list[Origin]) -> None:
    result = combine([of(o) for o in origins])
    assert result.origin is weakest(origins)
    assert all(result.origin.strength <= o.strength for o in origins)


@given(st.sampled_from(list(Origin)), st.sampled_from(list(Origin)))
def test_weakening_never_strengthens(start: Origin, wanted: Origin) -> None:
    if wanted.strength > start.strength:
        with pytest.raises(ProvenanceError):
            of(start).weakened(wanted, basis="x")
    else:
        assert of(start).weakened(wanted, basis="x").origin is wanted


def test_emulated_evidence_poisons_a_measured_one() -> None:
    emulated = Provenance(origin=Origin.EMULATED, instrument=FAKE, sources=(SourceRef(id="e", sha256=SHA),))
    mixed = combine([of(Origin.MEASURED), emulated])
    assert mixed.origin is Origin.EMULATED
    assert {s.id for s in mixed.sources} == {"capture", "e"}


def test_worst_figures_survive() -> None:
    a = Provenance(origin=Origin.IMPORTED, sync_uncertainty_s=0.001, loss_fraction=0.2)
    b = Provenance(origin=Origin.IMPORTED, sync_uncertainty_s=0.005, loss_fraction=None)
    both = combine([a, b])
    assert (both.sync_uncertainty_s, both.loss_fraction) == (0.005, 0.2)


def test_nothing_has_no_origin() -> None:
    with pytest.raises(ProvenanceError):
        combine([])


def test_sources_are_pinned_by_a_real_hash() -> None:
    with pytest.raises(ValueError, match="sha256"):
        SourceRef(id="a", sha256="abc")
