# SPDX-License-Identifier: Apache-2.0
# Writes the manual page that COMMAND prints to OUTPUT.
execute_process(COMMAND "${COMMAND}" manual OUTPUT_FILE "${OUTPUT}.new" COMMAND_ERROR_IS_FATAL ANY)
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
