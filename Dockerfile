# An image in which `pytorchrl` and its commands are installed, for the processor or, with another build of torch, a GPU:
#   docker build --tag pytorchrl .
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD/runs:/home/trainer/runs" \
#       --volume pytorchrl-cache:/home/trainer/.cache pytorchrl train --algorithm ppo --env CartPole-v1 --steps 20000
# Runs and their replay data lie in /home/trainer/runs; make ./runs before, or Docker makes it for the user root. --user
# gives them to you, and the volume keeps compiled kernels from one container to the next.
# Other extras, another build of torch, and a service of a policy:
#   docker build --build-arg EXTRAS=mujoco,atari --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
#   docker build --build-arg EXTRAS=serve --tag pytorchrl-serve .
#   docker run --rm --publish 8000:8000 --volume "$PWD/runs:/home/trainer/runs:ro" --entrypoint python pytorchrl-serve \
#       /opt/pytorchrl/serve_policy.py runs/PPO-CartPole-v1/seed-1 --host 0.0.0.0
FROM python:3.11-slim

ARG EXTRAS=mujoco
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# The sources are mounted (by BuildKit), so that no layer keeps them. Of torch 2.13.0 and the 2.13.0+cpu of torch's index,
# pip takes the latter; that index alone need not have the versions of the other packages.
RUN --mount=type=bind,target=/source,rw \
    pip install --no-cache-dir --constraint /source/constraints.txt --extra-index-url "$TORCH_INDEX" torch \
    && pip install --no-cache-dir --constraint /source/constraints.txt "/source[$EXTRAS]"
COPY examples/serve_policy.py /opt/pytorchrl/

# Any user may write there, for --user. Compiled kernels are kept in .cache.
RUN useradd --create-home trainer && mkdir /home/trainer/runs /home/trainer/.cache \
    && chmod 1777 /home/trainer /home/trainer/runs /home/trainer/.cache
ENV HOME=/home/trainer USER=trainer
USER trainer
WORKDIR /home/trainer
ENTRYPOINT ["python", "-m", "pytorchrl"]
CMD ["--help"]
