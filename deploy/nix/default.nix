# The extension, for services.postgresql.extensions of NixOS:
#
#   services.postgresql.extensions = ps: [
#     (pkgs.callPackage ./fairq/deploy/nix { postgresql = config.services.postgresql.package; })
#   ];
{ lib, stdenv, postgresql }:

stdenv.mkDerivation {
  pname = "fairq";
  version = "1.0.0";
  src = lib.cleanSource ../..;

  # pg_config is a package of its own since NixOS 25.05
  nativeBuildInputs = [ (postgresql.pg_config or postgresql) ];
  buildInputs = [ postgresql ];
  makeFlags = [ "with_llvm=no" ];
  # where the server finds extensions: lib and share/postgresql/extension
  installFlags = [
    "pkglibdir=${placeholder "out"}/lib"
    "datadir=${placeholder "out"}/share/postgresql"
  ];

  meta = {
    description = "Fair queue for tasks of many tenants, inside PostgreSQL";
    homepage = "https://github.com/fairq/fairq";
    license = lib.licenses.postgresql;
    platforms = postgresql.meta.platforms;
  };
}
