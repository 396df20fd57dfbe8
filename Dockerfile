# An image in which `pytorchrl` and its commands are installed, for the processor or, with another build of torch, a GPU:
#   docker build --tag pytorchrl .
#   docker run --rm --volume "$PWD/runs:/work/runs" pytorchrl train --algorithm ppo --env CartPole-v1 --steps 20000
# Runs and their replay data lie in /work/runs. Put extras and a torch of your own beside it:
#   docker build --build-arg EXTRAS=mujoco,atari --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
FROM python:3.12-slim

ARG EXTRAS=mujoco
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

COPY . /source
RUN pip install --no-cache-dir torch --index-url "$TORCH_INDEX" \
    && pip install --no-cache-dir --constraint /source/constraints.txt "/source[$EXTRAS]" \
    && rm -rf /source

# Compiled kernels are kept in the home of the user that runs the container.
RUN useradd --create-home trainer && mkdir /work && chown trainer /work
USER trainer
WORKDIR /work
ENTRYPOINT ["python", "-m", "pytorchrl"]
CMD ["--help"]
