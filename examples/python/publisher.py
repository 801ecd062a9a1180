# SPDX-License-Identifier: Apache-2.0
# A program of README.md: a node that publishes a hundred samples a second. subscriber.py receives them; either may
# start first.
import time, numpy, tendon

imu = tendon.Node("robot").publisher("robot/imu")
while True:
    imu.publish({"acceleration": numpy.array([0, 0, 9.81], "f4")})
    time.sleep(0.01)
