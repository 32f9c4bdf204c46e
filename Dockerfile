# JupyterLab with the lessons, in a kernel whose first cell needs no waiting. Build it in the repository's root:
#
#   docker build -t cloze .
#   docker run --rm -it -p 127.0.0.1:8888:8888 -v cloze:/home/learner cloze
#
# The second command prints the address. The volume keeps the learner's notebooks, answers and progress.
FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package cloze --package cloze-kernel --bins \
    && .ci/dist target/release /prefix

FROM rust:1-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/jupyter \
    && /opt/jupyter/bin/pip install --no-cache-dir jupyterlab jupyterlab_widgets anywidget
COPY --from=build /prefix /usr/local
# The session template lies outside the home folder, so that a volume may be mounted there. It needs nothing that cargo
# has downloaded.
RUN rustup component add rust-src \
    && cloze-kernel install --system \
    && rm -rf "$CARGO_HOME/registry" \
    && useradd --create-home --shell /bin/bash learner
ENV PATH=/opt/jupyter/bin:$PATH
USER learner
WORKDIR /home/learner
EXPOSE 8888
CMD ["cloze-kernel", "lab", "--no-browser", "--", "--ip=0.0.0.0"]
