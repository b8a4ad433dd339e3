"""One uninterrupted run that many tests compare with, and what they all share."""

import pytest

from tests.federation.harness import LIGHT, TINY, fresh, make_job, run_job

WORDS = [*TINY, *LIGHT, "participation_ratio=0.5"]


@pytest.fixture(scope="session")
def words():
    return list(WORDS)


@pytest.fixture(scope="session")
def job(tmp_path_factory):
    """The job of these words, assembled once; `fresh` makes of it what a new process would have."""
    return make_job(WORDS, tmp_path_factory.mktemp("job") / "never written")


@pytest.fixture(scope="session")
def straight(job, tmp_path_factory):
    """Folder of three rounds without interruption."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    run_job(fresh(job, folder))
    return folder


@pytest.fixture
def again(job, tmp_path):
    """Run the job where the test's own folder stands; return the folder."""

    def run_again(**ends):
        run_job(fresh(job, tmp_path / "run"), **ends)
        return tmp_path / "run"

    return run_again
