# An image with nothing but the static binary and the certificates of public authorities.
#   docker build --build-arg VERSION=$(git describe --tags --always) -t packhorse .
FROM golang:1.26-alpine AS build
ARG VERSION=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -mod=readonly -buildvcs=false -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/packhorse ./cmd/packhorse
RUN mkdir /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/packhorse /usr/local/bin/
COPY --from=build --chown=10001:10001 /out/data /data
ENV PATH=/usr/local/bin PACKHORSE_DATA=/data/packhorse PACKHORSE_LISTEN=:8080
USER 10001:10001
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=6s --start-period=5m CMD ["packhorse", "healthcheck"]
ENTRYPOINT ["packhorse"]
CMD ["serve"]
