# syntax=docker/dockerfile:1
# The tag of the base moves, so that a build gets its security updates. A build that is to be repeated names the digest:
#   docker build --build-arg PYTHON_IMAGE=python:3.12-slim-bookworm@sha256:... .
ARG PYTHON_IMAGE=python:3.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG EXTRAS=onnx,plots,postgres,serve
# A mirror of PyPI; the certificates of a network with an authority of its own come as a secret:
#   docker build --build-arg PIP_INDEX_URL=https://mirror.example/simple --secret id=ca,src=all-certificates.pem .
ARG PIP_INDEX_URL
WORKDIR /src
RUN apt-get update && apt-get install --yes --no-install-recommends binutils && python -m venv /opt/lrbs
# Dependencies first, so that a change of the code does not install them again.
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=ca \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi && \
    mkdir -p app/python solver migrations && touch app/__init__.py solver/__init__.py migrations/__init__.py && \
    /opt/lrbs/bin/pip install -c constraints.txt ".[$EXTRAS]" && \
    /opt/lrbs/bin/pip uninstall -y lrbs && \
    rm -rf build *.egg-info app solver migrations
# Empty modules that stayed in build/ would count as newer than those that are copied now.
COPY app app
COPY solver solver
COPY migrations migrations
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=ca \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi && \
    /opt/lrbs/bin/pip install --no-deps -c constraints.txt . && \
    /opt/lrbs/bin/pip uninstall -y pip setuptools
# A sixth less: tests of others, what only compilers, type checkers and debuggers read, and libraries that stand there twice.
# Libraries in folders `*.libs` were changed by tools after linking, and would be damaged by strip. All modules must load.
RUN cd /opt/lrbs/lib/python3*/site-packages && \
    rm -r alembic/testing joblib/test mako/testing sqlalchemy/testing && \
    find . -type d -name tests -prune -exec rm -r {} + && \
    find . -type f -regex '.*\.\(a\|c\|cpp\|h\|hpp\|pxd\|pxi\|pyi\|pyx\|tp\)' -delete && \
    find . -path '*.libs/*' -prune -o -type f -name '*.so' -exec strip --strip-unneeded {} + && \
    for file in numpy.libs/*; do \
        if cmp -s "$file" "scipy.libs/${file#*/}"; then ln -sf "../$file" scipy.libs/; fi; \
    done && \
    find . -name '*.so' ! -path '*.libs/*' -print0 | xargs -0 -n 10000 /opt/lrbs/bin/python -c \
        "import ctypes, os, sys, faiss, numpy, scipy.linalg; [ctypes.CDLL(p) for p in sys.argv[1:]]; os._exit(0)"

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --create-home --home-dir /var/lib/lrbs lrbs && install -d -o lrbs -g lrbs /data
COPY --from=build /opt/lrbs /opt/lrbs
ENV PATH=/opt/lrbs/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    MPLCONFIGDIR=/tmp/matplotlib \
    LRBS_DATA_DIR=/data \
    LRBS_HOST=0.0.0.0 \
    LRBS_PORT=8000 \
    LRBS_LOG_FORMAT=json
# By number: Kubernetes cannot tell from a name that it is not root.
USER 10001
WORKDIR /var/lib/lrbs
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1', 8000, timeout=4); c.request('GET', '/readyz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["lrbs"]
CMD ["serve"]
# Last, since they change with every build.
ARG VERSION=0.1.0
ARG REVISION
ARG CREATED
LABEL org.opencontainers.image.title="LRBS" \
    org.opencontainers.image.description="Learn a similarity between two kinds of data, and search one with the other" \
    org.opencontainers.image.licenses="MIT" \
    org.opencontainers.image.version="$VERSION" \
    org.opencontainers.image.revision="$REVISION" \
    org.opencontainers.image.created="$CREATED"
