# An image in which `pytorchrl` and its commands are installed, for the processor or, with another build of torch, a GPU:
#   docker build --tag pytorchrl .
#   docker run --rm --volume "$PWD/runs:/home/trainer/runs" pytorchrl train --algorithm ppo --env CartPole-v1 --steps 20000
# Runs and their replay data lie in /home/trainer/runs. Other extras, and another build of torch:
#   docker build --build-arg EXTRAS=mujoco,atari --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
FROM python:3.11-slim

ARG EXTRAS=mujoco
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

COPY . /source
RUN pip install --no-cache-dir --constraint /source/constraints.txt --index-url "$TORCH_INDEX" torch \
    && pip install --no-cache-dir --constraint /source/constraints.txt "/source[$EXTRAS]" \
    && rm -rf /source

# Compiled kernels are kept in the home of the user that runs the container.
RUN useradd --create-home trainer && mkdir /home/trainer/runs && chown trainer /home/trainer/runs
USER trainer
WORKDIR /home/trainer
ENTRYPOINT ["python", "-m", "pytorchrl"]
CMD ["--help"]
