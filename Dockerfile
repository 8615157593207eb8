# syntax=docker/dockerfile:1
# The command line and the server in an image.
#
#   docker build -t branchwise:cpu .
#   docker build -t branchwise:cuda --build-arg DEVICE=cuda .
#
# torch brings CUDA's libraries in its wheels, so both begin from the same base; the host has the driver and the
# NVIDIA container toolkit (`docker run --gpus all`).

ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
ARG DEVICE=cpu
ARG EXTRAS=serve,remote,evals
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/branchwise
ENV PATH=/opt/branchwise/bin:${PATH}

# Before the source, so that a change of it does not fetch torch again. The CUDA build names the triton that it
# was made with, which need not be the one that kernels are checked with on machines without a GPU.
COPY constraints.txt /build/constraints.txt
RUN set -eu; \
    case "${DEVICE}" in \
        cpu) pip install -c /build/constraints.txt --index-url https://download.pytorch.org/whl/cpu torch ;; \
        cuda) sed -i '/^triton==/d' /build/constraints.txt; pip install -c /build/constraints.txt torch ;; \
        *) echo "DEVICE=${DEVICE}: give cpu or cuda" >&2; exit 2 ;; \
    esac

COPY . /build/branchwise
RUN pip install -c /build/constraints.txt "/build/branchwise[${EXTRAS}]" && branchwise --version

FROM python:${PYTHON}-slim
# A compiler: the native operators are built for the processor at hand, and triton compiles its launchers.
# bubblewrap: the sandbox of generated programs.
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap g++ \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/branchwise /opt/branchwise
RUN useradd --create-home --uid 10001 branchwise \
    && install --directory --owner=branchwise --group=branchwise /home/branchwise/.cache
USER branchwise
WORKDIR /home/branchwise
ENV PATH=/opt/branchwise/bin:${PATH} \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Compiled operators and kernels, and models of the Hub.
VOLUME /home/branchwise/.cache
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=300s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["branchwise"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
