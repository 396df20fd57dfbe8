"""The web service of the examples answers with the actions of the policy."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.experiments import TrainedPolicy

pytest.importorskip("fastapi", reason="the web service needs the package fastapi")
pytest.importorskip("uvicorn", reason="the web service needs the package uvicorn")
pytestmark = pytest.mark.long
SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "serve_policy.py"
UVICORN = [
    *(sys.executable, "-m", "uvicorn", "--app-dir", str(SCRIPT.parent), "--factory"),
    *("serve_policy:service_of_environment", "--timeout-worker-healthcheck", "60"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "run"
    scheme = prl.Scheme(
        prl.PPO.create_factory(num_mini_batch=1, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=4),
        prl.GAEBuffer.create_factory(size=20),
        prl.VecEnv.create_factory("Pendulum-v1"),
        seed=1,
    )
    with prl.Learner(scheme, 40, folder) as learner:
        learner.run()
    return folder


@pytest.fixture(scope="module")
def address(run: Path) -> Iterator[str]:
    """The address of a running service that remembers two clients."""
    limits = ["--most-clients", "2", "--most-rows", "3", "--most-bytes", "1000"]
    with served([sys.executable, str(SCRIPT), str(run), "--port", "0", *limits]) as found:
        yield found


@contextmanager
def served(command: list[str], **variables: str) -> Iterator[str]:
    """The address of a service, which ends with the context."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | variables) as service:
        assert service.stderr is not None
        try:
            found = next(
                (re.search(r"http://([\d.]+):(\d+)", line) for line in service.stderr if "running on" in line), None
            )
            assert found is not None, "the service ended"
            # Processes of a server begin to listen after the line.
            while not listens(found[1], int(found[2])):
                assert service.poll() is None, "the service ended"
            yield found[0]
        finally:
            service.terminate()


def listens(host: str, port: int) -> bool:
    """Whether a server takes connections."""
    try:
        socket.create_connection((host, port), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True


def answer(address: str, **question: Any) -> Any:
    content = json.dumps(question).encode()
    request = urllib.request.Request(f"{address}/act", content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["action"]


def quickest_answer_seconds(address: str, question: Any) -> float:
    """The time of the quickest of 30 answers over a connection that stays open."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    content, times = json.dumps(question), []
    for _ in range(30):
        began = time.perf_counter()
        connection.request("POST", "/act", content, {"Content-Type": "application/json"})
        connection.getresponse().read()
        times.append(time.perf_counter() - began)
    connection.close()
    return min(times[1:])


def whole_answer(address: str, content: str) -> tuple[int, Any]:
    """The status and the content of an answer."""
    request = urllib.request.Request(f"{address}/act", content.encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def test_the_service_describes_the_policy(address: str) -> None:
    with urllib.request.urlopen(f"{address}/policy", timeout=60) as response:
        found = json.load(response)
    assert found["algorithm"] == "PPO"
    assert found["observation_space"].startswith("Box(")


def test_each_client_gets_the_actions_of_a_policy_with_its_own_memory(address: str, run: Path) -> None:
    algorithm = prl.load_policy(run).algorithm
    ours = {name: TrainedPolicy(algorithm) for name in ("one", "other")}
    random = np.random.default_rng(0)
    for step in range(3):
        for name, policy in ours.items():
            seen = random.normal(size=3).astype(np.float32)
            theirs = answer(address, observation=seen.tolist(), client=name, begins=step == 0)
            np.testing.assert_allclose(theirs, policy(seen), rtol=1e-5, atol=1e-6)
    seen = [0.5, -0.5, 0.1]
    ours["one"].reset()
    np.testing.assert_allclose(
        answer(address, observation=seen, client="one", begins=True), ours["one"](seen), rtol=1e-5
    )


def test_the_client_that_has_not_asked_for_the_longest_time_is_forgotten(address: str, run: Path) -> None:
    policy, seen = prl.load_policy(run), [1.0, 0.0, -1.0]
    first = policy(seen)
    for number, name in enumerate(["a", "b", "c", "a"]):
        theirs = answer(address, observation=seen, client=f"{name} of those forgotten")
        np.testing.assert_allclose(theirs, first, rtol=1e-5, err_msg=f"question {number}")


def test_an_observation_of_another_shape_is_refused_with_the_reason(address: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        answer(address, observation=[1.0, 2.0], client="one")
    assert refused.value.code == 422
    assert "the observation must have the shape (3,)" in refused.value.read().decode()


def test_the_service_says_that_it_is_there(address: str) -> None:
    with urllib.request.urlopen(f"{address}/health", timeout=60) as response:
        assert json.load(response) == {"status": "ok"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"observation": [0, 0, 0]}', "the policy has a memory: send"),
        ('{"observation": [0, 0, 0], "client": "one", "begin": true}', "Extra inputs are not permitted"),
        ('{"observation": [0, 0, 0], "client": "one", "begins": 1}', "valid boolean"),
        ('{"observation": [0, 0, "1"], "client": "one"}', "the observation must be numbers, got '1'"),
        ('{"observation": [0, 0, true], "client": "one"}', "the observation must be numbers, got True"),
        ('{"observation": [0, 0, null], "client": "one"}', "the observation must be numbers, got None"),
        ('{"observation": [0, 0, 1%s], "client": "one"}' % ("0" * 400), "too large"),
        ('{"observation": [0, 0, NaN], "client": "one"}', "nan"),
        ('{"observation": {"a": 1}, "client": "one"}', "got other values: a mapping with ['a']"),
        ('{"observation": [[0, 0, 0], [0, 0]], "client": "one"}', "must be numbers with the shape (3,)"),
        (json.dumps({"observation": [[0, 0, 0]] * 4, "client": "one"}), "at most 3 observations, got 4"),
    ],
)
def test_a_question_that_the_policy_cannot_answer_gets_status_422(address: str, content: str, reason: str) -> None:
    status, told = whole_answer(address, content)
    assert status == 422, told
    assert reason in json.dumps(told)
    assert "allow_nonfinite" not in json.dumps(told)


def test_an_answer_says_whether_the_state_was_new_and_a_refused_question_changes_none(address: str) -> None:
    question = '{"observation": %s, "client": "new here"%s}'
    asked = [question % ("[0, 0, 0]", end) for end in ("", "", ', "begins": true')]
    _, first = whole_answer(address, asked[0])
    status, told = whole_answer(address, question % ("[0, 0]", ', "begins": true'))
    assert status == 422, told
    _, second = whole_answer(address, asked[1])
    _, third = whole_answer(address, asked[2])
    assert [each["state_is_new"] for each in (first, second, third)] == [True, False, True]
    assert first["action"] == third["action"] != second["action"]


def test_another_number_of_rows_is_refused_in_terms_of_the_question(address: str) -> None:
    whole_answer(address, '{"observation": [0, 0, 0], "client": "rows"}')
    status, told = whole_answer(address, '{"observation": [[0, 0, 0], [0, 0, 0]], "client": "rows"}')
    assert status == 422
    assert 'send "begins": true where an episode begins' in told["detail"]
    assert "reset()" not in told["detail"]


def test_a_request_of_too_many_bytes_is_not_read(address: str) -> None:
    status, told = whole_answer(address, json.dumps({"observation": [0, 0, 0], "client": "x" * 1_000}))
    assert status == 413, told
    assert "at most 1000 bytes" in told["detail"]


def test_several_processes_serve_a_policy_without_a_memory_alone(run: Path, tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, SCRIPT, run, "--workers", "2"], capture_output=True, text=True, check=False
    )
    assert refused.returncode != 0
    assert "the policy has a memory, which lies in one process; leave out --workers" in refused.stderr
    scheme = prl.Scheme(
        prl.PPO.create_factory(num_mini_batch=1, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.GAEBuffer.create_factory(size=20),
        prl.VecEnv.create_factory("Pendulum-v1"),
    )
    with prl.Learner(scheme, 20, tmp_path / "run") as learner:
        learner.run()
    file = learner.save_policy(tmp_path / "policy.pt")
    expected, seen = prl.load_policy(file)([0.5, -0.5, 0.1]), {"observation": [0.5, -0.5, 0.1]}
    limit = ["--most-rows", "1"]
    for command in (
        [sys.executable, str(SCRIPT), str(file), "--port", "0", "--workers", "2", *limit],
        [*UVICORN, "--port", "0", "--workers", "2"],
    ):
        with served(command, POLICY=str(file), MOST_ROWS="1") as address:
            np.testing.assert_allclose(answer(address, **seen), expected, rtol=1e-5)
            status, told = whole_answer(address, '{"observation": [[0, 0, 0], [0, 0, 0]]}')
            assert (status, told["detail"]) == (422, "a request has at most 1 observations, got 2")
            if str(SCRIPT) in command:
                # An acknowledgement that an answer waits for takes 40 ms.
                assert quickest_answer_seconds(address, seen) < 0.03
