# Trains, translates and serves, with the current folder as /work:
#   docker build -t aiayn .                          for CPUs; for NVIDIA GPUs: --build-arg TORCH=cuda
#   docker run --rm --user "$(id -u)" -v "$PWD:/work" aiayn train experiment=quickstart logger=none
#   docker run --rm --gpus all --user "$(id -u)" -v "$PWD:/work" aiayn train trainer.accelerator=gpu   with GPUs; needs
#     the image of TORCH=cuda and NVIDIA's container toolkit; --gpus '"device=0,1"' chooses some, --shm-size=8g for several
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD:/work:ro" aiayn serve outputs/quickstart \
#     --host 0.0.0.0 --allow-host localhost
FROM python:3.11-slim
ARG TORCH=cpu
WORKDIR /src
COPY pyproject.toml setup.py MANIFEST.in constraints.txt README.md LICENSE ./
COPY conf conf
COPY src src
# With CUDA, torch.compile needs a C compiler. On Linux pip's default torch is the build for CUDA.
# hadolint ignore=DL3008
RUN if [ "$TORCH" = cpu ]; then \
      set -- --extra-index-url https://download.pytorch.org/whl/cpu; \
    else \
      apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*; \
    fi \
    && pip install --no-cache-dir -c constraints.txt "$@" "$(grep '^torch==' constraints.txt)" \
    && pip install --no-cache-dir -c constraints.txt '.[serve,dashboard]'
# Any user may run it: what libraries cache goes there.
ENV HOME=/tmp
USER 65534
WORKDIR /work
EXPOSE 8000
ENTRYPOINT ["aiayn"]
CMD ["--help"]
