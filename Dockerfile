# The server and the command line, without anything that only tests or builds need.
# Another base needs Python 3.11 as `python`, with its `venv`: a mirror of this one, or this one by digest.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
# The same sources make the same bytes: archives hold this time, and bytecode holds none.
ARG SOURCE_DATE_EPOCH=315532800
# A mirror of the package index; the lock's hashes hold for it, too.
ARG PIP_INDEX_URL
ENV PYTHONDONTWRITEBYTECODE=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_NO_DEPS=1
# Dependencies first: they are built again only when the lock changes.
COPY requirements.serve.lock ./
RUN python -m venv /opt/podgate \
 && /opt/podgate/bin/pip download --only-binary=:all: --require-hashes --dest wheels --requirement requirements.serve.lock \
 && /opt/podgate/bin/pip install --no-index --no-compile wheels/*.whl \
 && /opt/podgate/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/podgate/lib
COPY pyproject.toml README.md LICENSE ./
COPY certs ./certs
COPY manifests ./manifests
COPY webhook ./webhook
# wheels.sha256 names what is installed, for the bill of materials.
RUN /opt/podgate/bin/pip wheel --no-build-isolation --wheel-dir wheels . \
 && /opt/podgate/bin/pip install --no-index --no-compile wheels/podgate-*.whl \
 && /opt/podgate/bin/pip uninstall --yes setuptools pip \
 && rm wheels/setuptools-*.whl \
 && (cd wheels && sha256sum *.whl > /opt/podgate/wheels.sha256) \
 && cd /opt/podgate/lib/python*/site-packages \
 && python -m compileall -q --invalidation-mode unchecked-hash certs manifests webhook

FROM ${BASE}
LABEL org.opencontainers.image.title="podgate" \
      org.opencontainers.image.description="Admission-time scheduling interceptor for Kubernetes" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="Apache-2.0"
# The base's package installer, and programs that run as root for anybody. Bytecode of the standard library saves a start
# a quarter of its CPU time.
RUN rm -rf $(python -c "import ensurepip, site; print(*site.getsitepackages(), *ensurepip.__path__)") /usr/local/bin/pip* /usr/local/bin/wheel /usr/share/python-wheels \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
 && python -m compileall -q --invalidation-mode unchecked-hash $(python -c "import sysconfig; print(sysconfig.get_path('stdlib'))")
COPY --from=build /opt/podgate /opt/podgate
# A new volume inherits the owner of the folder that it is mounted on, so Podgate owns docker-compose.yml's keys.
RUN install --directory --owner=65532 --group=65532 --mode=0700 /pki
# The root file system may be read-only: nothing is written, not even compiled modules.
ENV PATH=/opt/podgate/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1
# As a number: Kubernetes can tell that this is not root.
USER 65532:65532
EXPOSE 8443 8081
ENTRYPOINT ["podgate"]
