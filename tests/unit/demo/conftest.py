"""A data folder with four flights instead of the package's own."""

import zipfile
from pathlib import Path

import pytest

from raylog.demo import flights

HEAD = (
    '"year","month","day","dep_time","sched_dep_time","dep_delay","arr_time","sched_arr_time",'
    '"arr_delay","carrier","flight","tailnum","origin","dest","air_time","distance","hour",'
    '"minute","time_hour"\n'
)
LATER = (
    '2013,1,1,517,515,2,830,819,11,"UA",1545,"N14228","EWR","IAH",227,1400,5,15,'
    "2013-01-01T10:00:00Z\n"
)
CANCELLED = '2013,1,1,NA,500,NA,NA,700,NA,"AA",1,NA,"JFK","BOS",NA,187,5,0,2013-01-01T10:00:00Z\n'
WEATHER = (
    "origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,"
    "visib,time_hour\n"
    "EWR,2013,1,1,5,39.02,26.06,59.37,270,10.357,NA,0,1012,10,2013-01-01T10:00:00Z\n"
    "EWR,2013,2,1,5,39.02,26.06,59.37,270,10.357,NA,0,1012,10,2013-02-01T10:00:00Z\n"
)
AIRLINES = "carrier,name\nUA,United Air Lines Inc.\nAA,American Airlines Inc.\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as opened:
        opened.writestr("flights.csv", HEAD + LATER + CANCELLED * 3)
    (tmp_path / "weather.csv").write_text(WEATHER)
    (tmp_path / "airlines.csv").write_text(AIRLINES)
    monkeypatch.setattr(flights, "data_folder", lambda: tmp_path)
    return tmp_path
