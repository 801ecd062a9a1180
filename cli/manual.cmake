# SPDX-License-Identifier: Apache-2.0
# Writes what COMMAND says of itself to OUTPUT.
execute_process(COMMAND "${COMMAND}" manual OUTPUT_FILE "${OUTPUT}.new" COMMAND_ERROR_IS_FATAL ANY)
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
