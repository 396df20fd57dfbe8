"""Environments that break gymnasium's interface raise errors that name them, the fault and the remedy."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from tests.support.compositions import dqn_scheme
from tests.support.toys import Counter, Noise


class Wrong(gym.Env[Any, Any]):
    """Returns what its arguments say from reset and step."""

    def __init__(self, observation: Any = None, space: Any = None, reset: Any = None, step: Any = None) -> None:
        self.observation_space = space or spaces.Box(-10, 10, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.observation = np.zeros(2, np.float32) if observation is None else observation
        self.answers = {"reset": reset, "step": step}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        answer = self.answers["reset"]
        return (self.observation, {}) if answer is None else answer

    def step(self, action: Any) -> Any:
        parts = {"observation": self.observation, "reward": 1.0, "terminated": False, "truncated": False, "info": {}}
        answer = self.answers["step"]
        return tuple((parts | answer).values()) if isinstance(answer, dict) else tuple(parts.values())[: answer or 5]


def two_steps(environment: Any, mode: str = "sync", **arguments: Any) -> None:
    envs = prl.VecEnv(environment, num_envs=2, mode=mode, **arguments)  # type: ignore[arg-type]
    try:
        envs.reset(seed=0)
        for _ in range(2):
            envs.step(np.zeros((2, 1), np.int64))
    finally:
        envs.close()


SMALL = np.zeros(2, np.float32)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "old reset": (
        {"reset": SMALL},
        r"reset\(\) of <Wrong instance> returned an array of shape \(2,\); it must",
    ),
    "reset without a dict": ({"reset": (SMALL, None)}, r"reset\(\) .* info being a dict"),
    "old step": ({"step": 4}, r"step\(\) of <Wrong instance> returned a tuple of 4; .* split done into terminated"),
    "array of rewards": ({"step": {"reward": np.ones(1)}}, r"the reward an array of shape \(1,\); it must be one num"),
    "no reward": ({"step": {"reward": None}}, "the reward None; it must be one number"),
    "flag of None": ({"step": {"truncated": None}}, "truncated None; it must be a bool"),
    "info of text": ({"step": {"info": "x"}}, "info 'x'; it must be a dict"),
    "shape": ({"observation": np.zeros(3, np.float32)}, r"of shape \(3,\); its space Box\(-10.0, .* has shape \(2,\)"),
    "ragged": ({"observation": [[1], [2, 3]]}, r"an observation that is no array, \[\[1\], \[2, 3\]\]"),
    "unsafe cast": (
        {"space": spaces.Box(0, 255, (2,), np.uint8), "observation": np.array([0.5, 1.5])},
        "of dtype float64, which its space .* would cut to uint8; declare the space of float64, or return uint8",
    ),
    "outside discrete": ({"space": spaces.Discrete(3), "observation": 3}, r"outside its space Discrete\(3\): 3"),
    "missing key": (
        {"space": spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2)), "observation": {"a": 1}},
        r"an observation of \['a'\]; its space has \['a', 'b'\]",
    ),
    "shape of a part": (
        {"space": spaces.Dict(a=spaces.Discrete(2)), "observation": {"a": np.zeros(2, np.int64)}},
        r"an observation, 'a' of it of shape \(2,\)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_return_value_raises_an_error_that_names_it(name: str) -> None:
    arguments, message = WRONG[name]
    with pytest.raises(prl.InvalidEnvironmentError, match=message) as error:
        two_steps(Wrong, env_kwargs=arguments)
    assert "VecEnv: " in str(error.value)
    assert "<Wrong instance>" in str(error.value)


@pytest.mark.filterwarnings("ignore:.*Worker:UserWarning", "ignore:.*ERROR:UserWarning")
@pytest.mark.parametrize("name", ["old step", "shape"])
def test_an_invalid_return_value_is_reported_from_async_environments(name: str) -> None:
    arguments, message = WRONG[name]
    with pytest.raises(prl.InvalidEnvironmentError, match=message):
        two_steps(Wrong, "async", env_kwargs=arguments)


def test_registered_environments_get_the_same_error_messages() -> None:
    gym.register("Test/Wrong-v0", Wrong)
    try:
        with pytest.raises(prl.InvalidEnvironmentError, match=r"of <OrderEnforcing<Wrong<Test/Wrong-v0>>> ret"):
            two_steps("Test/Wrong-v0", env_kwargs={"step": 4})
    finally:
        del gym.registry["Test/Wrong-v0"]


def test_a_wrapper_that_breaks_the_interface_is_named_in_the_error() -> None:
    class Shorter(gym.ObservationWrapper[Any, Any, Any]):
        def observation(self, observation: Any) -> Any:
            return observation[:1]

    with pytest.raises(prl.InvalidEnvironmentError, match=r"reset\(\) of <Shorter<Counter instance>> ret"):
        two_steps(Counter, wrappers=[Shorter])


def test_observations_outside_their_bounds_only_raise_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"outside the bounds of its space Box.*: numbers from 11.0 to 11.0"):
        two_steps(Wrong, env_kwargs={"observation": np.full(2, 11, np.float32)})


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_observations_that_are_not_finite_raise_a_warning_with_their_position(number: float) -> None:
    with pytest.warns(UserWarning, match="which networks cannot process; return finite numbers") as caught:
        two_steps(Wrong, env_kwargs={"observation": np.array([0, number], np.float32)})
    warned = {str(warning.message).partition(", which")[0] for warning in caught}
    assert warned == {
        f"VecEnv: {method}() of <Wrong instance> returned an observation with {number} at (1,)"
        for method in ("reset", "step")
    }


@pytest.mark.parametrize("at", [2, 40])
def test_a_non_finite_reward_is_refused_at_any_step_and_names_the_environment(at: int, tmp_path: Path) -> None:
    envs = prl.VecEnv.create_factory(PaysNaNLate, env_kwargs={"at": at})
    learner = prl.Learner(dqn_scheme(envs=envs), 100, tmp_path / "run")
    with pytest.raises(prl.SampleError, match=r"Reward of environment 0 is nan at step") as error:
        learner.run()
    learner.close()
    assert "The sample was collected in <PaysNaNLate instance>, by reset() or step()." in error.value.__notes__


class PaysNaNLate(Counter):
    def __init__(self, at: int) -> None:
        super().__init__(length=60)
        self.at = at

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, float("nan") if self.count == self.at else reward, *rest


@pytest.mark.parametrize("observation", [np.zeros(2), [0, 1], (0.5, 1)])
def test_valid_observations_are_accepted_in_any_array_like_form(observation: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        two_steps(Wrong, env_kwargs={"observation": observation, "step": {"reward": np.float32(1), "terminated": 0}})


def test_an_object_that_is_not_an_environment_is_refused() -> None:
    with pytest.raises(prl.InvalidEnvironmentError, match=r"VecEnv: <lambda> made None, which is no gymnasium.Env"):
        prl.VecEnv(lambda: None)  # type: ignore[arg-type, return-value]

    class NoSpace(Counter):
        def __init__(self) -> None:
            super().__init__()
            del self.action_space

    with pytest.raises(prl.InvalidEnvironmentError, match=r"<NoSpace instance> has no action_space; set self"):
        prl.VecEnv(NoSpace)


def test_a_reset_that_takes_no_seed_is_refused() -> None:
    class Old(Counter):
        def reset(self):  # type: ignore[no-untyped-def, override]
            return np.zeros(2, np.float32)

    with pytest.raises(prl.InvalidEnvironmentError, match=r"reset\(\) of <Old instance> takes \(\); gymnasium's is"):
        prl.VecEnv(Old)


def test_an_environment_instance_is_refused_with_the_class_to_pass() -> None:
    with pytest.raises(ValueError, match=r"VecEnv: env is an instance, <Counter instance>; .* pass the class, Counter"):
        prl.VecEnv.create_factory(Counter())


def test_checks_draw_no_random_numbers_and_change_no_episode() -> None:
    envs = prl.VecEnv(Noise)
    first = envs.reset(seed=5)
    plain = Noise()
    seen, _ = plain.reset(seed=int(np.random.SeedSequence(5).generate_state(1)[0]))
    np.testing.assert_array_equal(first[0], seen)
    for _ in range(10):
        step = envs.step(np.zeros((1, 1), np.int64))
        seen, _, terminated, truncated, _ = plain.step(0)
        np.testing.assert_array_equal(step.next_observation[0], seen)
        if terminated or truncated:
            plain.reset()


def test_only_the_first_steps_are_checked() -> None:
    class Late(Counter):
        def step(self, action: Any) -> Any:
            observation, reward, *rest = super().step(action)
            return observation, np.float64(reward) if self.count < 5 else np.array(reward), *rest

    envs = prl.VecEnv(Late, env_kwargs={"length": 20})
    envs.reset(seed=0)
    for _ in range(10):
        envs.step(np.zeros((1, 1), np.int64))


class WrongAtTheEnd(Counter):
    """Returns something else from the last step of an episode."""

    def __init__(self, last: Any) -> None:
        super().__init__(length=20)
        self.last = last

    def step(self, action: Any) -> Any:
        result = super().step(action)
        return self.last(*result) if result[2] else result


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (lambda observation, *rest: (observation, None, *rest[1:]), "the reward None; it must be one number"),
        (lambda *result: result[:4], "a tuple of 4; it must return .* split done into terminated"),
        (lambda *result: (*result[:4], None), "info None; it must be a dict"),
    ],
)
def test_a_last_step_of_an_episode_that_is_wrong_raises_the_error_of_the_first_steps(last: Any, message: str) -> None:
    with prl.VecEnv(WrongAtTheEnd, env_kwargs={"last": last}) as envs:
        envs.reset(1)
        for _ in range(19):
            envs.step(np.zeros((1, 1), np.int64))
        with pytest.raises(prl.InvalidEnvironmentError, match=rf"step\(\) of <WrongAtTheEnd instance> .*{message}"):
            envs.step(np.zeros((1, 1), np.int64))


class Changing(Counter):
    """Episodes of 50 steps, the last observation of which has another shape, wrapped or not."""

    def __init__(self, kind: str, last: Any) -> None:
        super().__init__(kind, length=50)
        self.last = last

    def step(self, action: Any) -> Any:
        observation, reward, terminated, *rest = super().step(action)
        if terminated:
            observation = {**observation, "count": self.last} if isinstance(observation, dict) else self.last
        return observation, reward, terminated, *rest


def identity(env: Any) -> Any:
    return gym.Wrapper(env)


@pytest.mark.quick_share(0.5)
@pytest.mark.filterwarnings("ignore:.*Received the following error:UserWarning")
@pytest.mark.filterwarnings("ignore:.*(Traceback|Raising the last):UserWarning")
@pytest.mark.parametrize("wrappers", [(), (identity,)])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("kind", ["vector", "dict"])
@pytest.mark.parametrize("shape", [(1,), (5,)])
def test_a_later_observation_of_another_shape_is_named_with_its_environment_and_step(
    shape: Any, kind: str, mode: Any, wrappers: Any
) -> None:
    given = {"kind": kind, "last": np.zeros(shape, np.float32)}
    with prl.VecEnv(Changing, 2, mode=mode, env_kwargs=given, wrappers=wrappers) as envs:
        envs.reset(1)
        for _ in range(49):
            envs.step(np.zeros((2, 1), np.int64))
        message = rf"step 50 of an episode of .*Changing.* of shape \({shape[0]},\); its space Box.* has shape \("
        with pytest.raises(prl.InvalidEnvironmentError, match=message):
            envs.step(np.zeros((2, 1), np.int64))


def test_the_error_for_a_wrapper_with_a_missing_package_names_the_package() -> None:
    class NeedsPackage(gym.Wrapper[Any, Any, Any, Any]):
        def __init__(self, env: Any) -> None:
            raise gym.error.DependencyNotInstalled("opencv-python is not installed.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gym.wrappers, "AtariPreprocessing", NeedsPackage)
        with pytest.raises(
            gym.error.DependencyNotInstalled, match=r"VecEnv: the wrapper AtariPreprocessing needs .* opencv-python"
        ):
            prl.VecEnv(Counter, wrappers=["AtariPreprocessing"])


@pytest.mark.parametrize("wrapper", ["NormalizeObservation", gym.wrappers.NormalizeObservation])
def test_normalize_observation_wrappers_are_refused_in_favour_of_shared_statistics(wrapper: Any) -> None:
    with pytest.raises(
        ValueError, match=r"NormalizeObservation keeps separate statistics .* with normalize_observations=True"
    ):
        prl.VecEnv.create_factory("CartPole-v1", wrappers=[wrapper])
    with pytest.raises(
        ValueError, match=r"NormalizeObservation keeps separate statistics .* with normalize_observations=True"
    ):
        prl.VecEnv(lambda: gym.wrappers.NormalizeObservation(gym.make("CartPole-v1")))


def test_env_spec_is_the_specification_of_the_registered_environment() -> None:
    envs = prl.VecEnv("CartPole-v1")
    assert envs.env_spec == gym.make("CartPole-v1").spec.to_json()  # type: ignore[union-attr]


# Arguments


class Sized(Wrong):
    """Takes a size, which must have a length."""

    def __init__(self, size: Any = ()) -> None:
        if len(size):
            Sized(width=size)  # type: ignore[call-arg]
        super().__init__()


@pytest.mark.parametrize(("environment", "named"), [("CartPole-v1", "'CartPole-v1'"), (Sized, "Sized")])
def test_an_argument_that_an_environment_does_not_take_is_an_error_that_names_both(
    environment: Any, named: str
) -> None:
    with pytest.raises(
        prl.InvalidEnvironmentError, match=rf"^VecEnv: env {named} does not take env_kwargs \{{'foo': 1\}}: .*'foo'"
    ):
        prl.VecEnv(environment, env_kwargs={"foo": 1})


@pytest.mark.parametrize("size", [3, "wide"])
def test_a_type_error_in_the_code_of_a_constructor_stays_itself(size: Any) -> None:
    with pytest.raises(TypeError, match=r"has no len|unexpected keyword argument 'width'"):
        prl.VecEnv(Sized, env_kwargs={"size": size})
