"""Trees of real files that look like /proc and /sys of a device."""

from pathlib import Path


def tree(root: Path, files: dict[str, object]) -> Path:
    """Write files below ``root``."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


STAT = """cpu  100 0 100 800 0 0 0 0 0 0
cpu0 60 0 40 300 100 0 0 0 0 0
cpu1 40 0 60 400 0 0 0 0 0 0
intr 12345 0 0"""

MEMINFO = """MemTotal:        3884340 kB
MemFree:          812345 kB
MemAvailable:    2000000 kB"""

NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo:   999    9    0    0    0     0          0         0      999    9    0    0    0     0
 wlan0:  5000   10    0    0    0     0          0         0     7000   11    0    0    0     0"""

CPU = "sys/devices/system/cpu"
THERMAL = "sys/class/thermal"


def raspberry_pi(root: Path) -> Path:
    """A Pi 4 as its kernel shows it."""
    return tree(
        root,
        {
            f"{CPU}/cpu0/cpufreq/scaling_cur_freq": 1500000,
            f"{CPU}/cpu1/cpufreq/scaling_cur_freq": 600000,
            f"{CPU}/cpu10/cpufreq/scaling_cur_freq": 700000,
            f"{THERMAL}/thermal_zone0/type": "cpu-thermal",
            f"{THERMAL}/thermal_zone0/temp": 61832,
            f"{THERMAL}/cooling_device0/type": "cpufreq-cpu0",
            f"{THERMAL}/cooling_device0/cur_state": 0,
            f"{THERMAL}/cooling_device1/type": "pwm-fan",
            f"{THERMAL}/cooling_device1/cur_state": 3,
            "sys/devices/platform/soc/soc:firmware/get_throttled": "50000",
            "proc/stat": STAT,
            "proc/loadavg": "0.52 0.40 0.30 1/234 5678",
            "proc/meminfo": MEMINFO,
            "proc/net/dev": NET_DEV,
        },
    )


def phone(root: Path) -> Path:
    """A phone as Termux sees it: no /proc/stat, no /proc/net/dev, two zones of one name, a battery."""
    tree(
        root,
        {
            f"{CPU}/cpu0/cpufreq/scaling_cur_freq": 1804800,
            f"{THERMAL}/thermal_zone0/type": "cpu-0-0",
            f"{THERMAL}/thermal_zone0/temp": 40000,
            f"{THERMAL}/thermal_zone1/type": "cpu-0-0",
            f"{THERMAL}/thermal_zone1/temp": 52500,
            f"{THERMAL}/thermal_zone2/type": "broken",
            f"{THERMAL}/thermal_zone2/temp": "n/a",
            "sys/class/power_supply/battery/type": "Battery",
            "sys/class/power_supply/battery/capacity": 83,
            "sys/class/power_supply/battery/temp": 314,
            "sys/class/power_supply/battery/current_now": -412000,
            "sys/class/power_supply/battery/voltage_now": 4123000,
            "sys/class/power_supply/usb/type": "USB",
            "proc/meminfo": MEMINFO,
        },
    )
    # A folder refuses to be read, also to root: what a file without permission does to an app.
    for hidden in ("proc/stat", "proc/loadavg", "proc/net/dev"):
        (root / hidden).mkdir(parents=True)
    return root


def sensors(root: Path) -> Path:
    """An INA3221 as on a Jetson, an INA219 on I2C, a RAPL domain."""
    return tree(
        root,
        {
            "sys/class/hwmon/hwmon0/name": "cpu_thermal",
            "sys/class/hwmon/hwmon2/name": "ina219",
            "sys/class/hwmon/hwmon2/in1_input": 5012,
            "sys/class/hwmon/hwmon2/curr1_input": 640,
            "sys/class/hwmon/hwmon2/power1_input": 3200000,
            "sys/class/hwmon/hwmon2/update_interval": 68,
            "sys/class/hwmon/hwmon3/name": "ina3221",
            "sys/class/hwmon/hwmon3/in1_label": "VDD_IN",
            "sys/class/hwmon/hwmon3/in1_input": 4976,
            "sys/class/hwmon/hwmon3/curr1_input": 1112,
            "sys/class/hwmon/hwmon3/in2_label": "VDD_CPU",
            "sys/class/hwmon/hwmon3/in2_input": 4960,
            "sys/class/hwmon/hwmon3/curr2_input": 304,
            "sys/class/powercap/intel-rapl:0/name": "package-0",
            "sys/class/powercap/intel-rapl:0/energy_uj": 123456789,
            "sys/class/powercap/intel-rapl:0/max_energy_range_uj": 262143328850,
        },
    )
