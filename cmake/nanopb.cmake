# brood_nanopb(OUT_VAR name): generate schemas/proto/name.proto into gen/schemas/proto/name.pb.{c,h}
find_program(NANOPB_GENERATOR nanopb_generator.py REQUIRED)
set(NANOPB_PYTHON /usr/bin/python3 CACHE FILEPATH "interpreter that has Debian's python3-protobuf")
function(brood_nanopb out name)
    set(gen ${CMAKE_BINARY_DIR}/gen/schemas/proto)
    set(src ${CMAKE_SOURCE_DIR}/schemas/proto)
    file(MAKE_DIRECTORY ${gen})
    add_custom_command(
        OUTPUT ${gen}/${name}.pb.c ${gen}/${name}.pb.h
        COMMAND ${NANOPB_PYTHON} ${NANOPB_GENERATOR} -q -I ${src} -D ${gen} ${src}/${name}.proto
        DEPENDS ${src}/${name}.proto ${src}/${name}.options
        WORKING_DIRECTORY ${src} VERBATIM)
    set(${out} ${gen}/${name}.pb.c PARENT_SCOPE)
    set_source_files_properties(${gen}/${name}.pb.c PROPERTIES COMPILE_OPTIONS "-Wno-undef")
endfunction()
