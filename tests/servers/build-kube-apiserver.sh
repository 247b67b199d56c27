#!/bin/sh
# kube-apiserver from Debian's own source package, which no binary package carries: build-kube-apiserver.sh FOLDER
# Wants a Debian of version 12 with `deb-src` among its sources, root (it installs Go and etcd), 3 GB and ten minutes.
set -eu
folder=$(mkdir -p "$1" && cd "$1" && pwd)
[ ! -x "$folder/kube-apiserver" ] || exit 0
apt-get install -y -qq --no-install-recommends golang-1.19-go etcd-server golang-github-modern-go-reflect2-dev dpkg-dev >/dev/null
cd "$folder"
apt-get source -qq kubernetes
mkdir -p go/src/k8s.io
rm -rf go/src/k8s.io/kubernetes
mv kubernetes-*/ go/src/k8s.io/kubernetes
cd go/src/k8s.io/kubernetes
# The copy that comes with it crashes under this Go as soon as a resource of one's own is served.
rm -rf vendor/github.com/modern-go/reflect2
cp -r /usr/share/gocode/src/github.com/modern-go/reflect2 vendor/github.com/modern-go/reflect2
export PATH="/usr/lib/go-1.19/bin:$PATH" GOPATH="$folder/go" GOCACHE="$folder/cache" GO111MODULE=off GOFLAGS=
# The one generated source that does not come with it: the OpenAPI definitions of everything that asks for some.
packages=$(grep -rlE --include='*.go' '\+k8s:openapi-gen=' staging/src/k8s.io pkg | grep -v 'code-generator/_examples\|sample-apiserver' | xargs -n1 dirname |
    sort -u | sed 's#^staging/src/#k8s.io/kubernetes/vendor/#; s#^pkg/#k8s.io/kubernetes/pkg/#' | paste -sd,)
go build -o "$folder/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
"$folder/openapi-gen" --logtostderr -O zz_generated.openapi -i "$packages" -p k8s.io/kubernetes/pkg/generated/openapi \
    -h hack/boilerplate/boilerplate.generatego.txt -r "$folder/violations"
go build -o "$folder/kube-apiserver" ./cmd/kube-apiserver
rm -rf "$folder/go" "$folder/cache" "$folder/openapi-gen" "$folder/violations" "$folder"/kubernetes_*
